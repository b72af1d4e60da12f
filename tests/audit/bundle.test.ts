import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { usd } from '../../src/base/money.ts'
import { checkProof } from '../../src/audit/bundle-check.ts'
import { openLogReader, type SharedLogReader } from '../../src/audit/read-side.ts'
import { verifyPage } from '../../src/dashboard/verify-page.ts'
import { openReader, type Store } from '../../src/ledger/database.ts'
import { invoiceBundle } from '../../src/ledger/invoice-proofs.ts'
import { AT_MS } from '../ledger/make.ts'
import { freshFolder, good } from './folder.ts'
import { makeSmallHouse } from './small-house.ts'

setDefaultTimeout(60_000)

const folder = freshFolder()
let store: Store
let reader: SharedLogReader
let keys: string[]
let whole: any
beforeAll(async () => {
  await makeSmallHouse(folder.path, 200, 1)
  store = openReader(folder.path, 'ledger')
  reader = good(openLogReader(join(folder.path, 'audit')))
  keys = readFileSync(join(folder.path, 'audit/signing-key.pub'), 'utf8').trim().split('\n')
  whole = JSON.parse(textOf('acme', AT_MS, AT_MS + 1_000))
})
afterAll(() => {
  reader.close()
  store.sqlite.close()
  folder[Symbol.dispose]()
})

const textOf = (tenant: string, from_ms: number, to_ms: number, from?: number): string => {
  const pieces = invoiceBundle(store, reader, keys, { tenant, from_ms, to_ms, ...(from !== undefined && { from }) })
  let text = ''
  for (;;) {
    const { done, value } = pieces.next()
    if (!done) text += value
    else if (value === undefined) return text
    else throw new Error(value.detail.says)
  }
}
const trust = { keys: [], saved: undefined, consistency: undefined }
const faultOf = (bundle: unknown, more: object = {}): string => {
  try {
    checkProof(JSON.stringify(bundle), { ...trust, ...more })
    return 'sound'
  } catch (cause) {
    return (cause as Error).message
  }
}
const leafOf = (bundle: any, line: number) => JSON.parse(Buffer.from(bundle.lines[line].leaf, 'base64').toString())
const changedLeaf = (bundle: any, line: number, change: object) => {
  const copy = structuredClone(bundle)
  copy.lines[line].leaf = Buffer.from(JSON.stringify({ ...leafOf(bundle, line), ...change })).toString('base64')
  return copy
}
const edited = (edit: (bundle: any) => void) => {
  const copy = structuredClone(whole)
  edit(copy)
  return copy
}

test('every line of an invoice is proved, and the sum is theirs', () => {
  expect(whole.invoice.calls).toBe(133)
  expect(whole.lines).toHaveLength(133)
  const { says } = checkProof(JSON.stringify(whole), trust)
  expect(says.at(-1)).toContain(`133 calls, ${usd(BigInt(whole.invoice.charge_nanodollars))} USD of charges`)
  expect(BigInt(whole.invoice.charge_nanodollars)).toBe(
    whole.lines.reduce(
      (sum: bigint, _: unknown, nth: number) => sum + BigInt(leafOf(whole, nth).charge_nanodollars),
      0n,
    ),
  )
})

test('lines share their nodes, and none needs more than log2 of the size', () => {
  const { size } = good(reader.latest())!.checkpoint
  for (const line of whole.lines) expect(line.path.length).toBeLessThanOrEqual(Math.ceil(Math.log2(size)))
  expect(new Set(whole.nodes).size).toBe(whole.nodes.length)
  const named = whole.lines.reduce((sum: number, line: { path: number[] }) => sum + line.path.length, 0)
  expect(whole.nodes.length).toBeLessThan(named / 2)
})

test.each([
  ['a charge', () => changedLeaf(whole, 7, { charge_nanodollars: 1 }), /^line 7 \(call_\d+\) is not in the log/],
  ['a line left out', () => edited((bundle) => bundle.lines.pop()), /says 133 calls and has 132 lines/],
  [
    'a line twice',
    () => edited((bundle) => bundle.lines.push(bundle.lines[0])),
    /line 133 proves leaf \d+, as a line before/,
  ],
  [
    'two lines swapped in their numbers',
    () => edited(({ lines: [one, other] }) => ([one.index, other.index] = [other.index, one.index])),
    /^line [01] /,
  ],
  ['a node', () => edited((bundle) => (bundle.nodes[3] = Buffer.alloc(32, 1).toString('base64'))), /is not in the log/],
  ['a missing node', () => edited((bundle) => bundle.nodes.pop()), /needs node \d+/],
  ['a shorter path', () => edited((bundle) => bundle.lines[5].path.pop()), /^line 5 .*fewer nodes/],
  ['the sum', () => edited((bundle) => (bundle.invoice.charge_nanodollars = '1')), /the invoice says 1 nanodollars/],
  ['the tenant', () => edited((bundle) => (bundle.invoice.tenant = 'globex')), /is of tenant "acme", not "globex"/],
  ['the time', () => edited((bundle) => (bundle.invoice.from_ms += 100)), /outside the invoice/],
  ['the salt', () => edited((bundle) => (bundle.lines[2].salt = '00'.repeat(16))), /^line 2 .*salt/],
  [
    'the size',
    () => edited((bundle) => (bundle.checkpoint = bundle.checkpoint.replace(/\n\d+\n/, '\n9\n'))),
    /signature .* is not valid/,
  ],
  ['the key', () => edited((bundle) => (bundle.public_keys = [])), /not signed by a known key/],
  ['no JSON', () => 'x', /must be an object/],
])('changed in a bundle, %s is found', (_what, bundle, says) => expect(faultOf(bundle())).toMatch(says))

test('a consistency proof in the bundle links it to a checkpoint that was kept', () => {
  const linked = JSON.parse(textOf('globex', AT_MS, AT_MS + 1_000, 40))
  expect(linked.consistency).toMatchObject({ from: 40 })
  const kept = `${whole.checkpoint.split('\n')[0]}\n40\n${linked.consistency.from_root}\n\n${whole.checkpoint.split('\n\n')[1]}`
  expect(faultOf(linked, { saved: kept })).toBe('sound')
  expect(faultOf(linked, { saved: kept.replace('\n40\n', '\n41\n') })).toContain('kept checkpoint is of size 41')
  expect(faultOf(linked, { saved: whole.checkpoint })).toBe('sound')
})

const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
  existsSync(path),
)
/** Where the pictures go, to be looked at; nowhere unless it is asked for. */
const PICTURES = process.env['AUDIT_PICTURES']

/** Opens a page from the disk, in a browser without a window, and gives back what it has become. */
const opened = (name: string, html: string): string => {
  const path = join(folder.path, `${name}.html`)
  writeFileSync(path, html)
  const profile = join(folder.path, `profile-${name}`)
  const run = (...what: string[]) =>
    Bun.spawnSync(
      [
        CHROMIUM!,
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-dev-shm-usage',
        `--user-data-dir=${profile}`,
        '--virtual-time-budget=3000',
        ...what,
        `file://${path}`,
      ],
      { stderr: 'ignore' },
    )
  if (PICTURES !== undefined) {
    mkdirSync(PICTURES, { recursive: true })
    run(`--screenshot=${join(PICTURES, `${name}.png`)}`, '--window-size=1200,900')
  }
  return run('--dump-dom').stdout.toString()
}

describe.skipIf(CHROMIUM === undefined)('the page, opened from disk in a real browser', () => {
  test('verifies a good invoice', () => {
    const dom = opened('good', verifyPage(JSON.stringify(whole)))
    expect(/id="verdict" class="good">([^<]*)/.exec(dom)?.[1]).toMatch(/Sound: all 133 lines are in the log/)
    expect(dom.match(/<td class="state good">✓ in the log/g)).toHaveLength(133)
    expect(dom).not.toContain('class="bad"')
  })

  test('shows the broken line of a bad one', () => {
    const dom = opened('bad', verifyPage(JSON.stringify(changedLeaf(whole, 7, { charge_nanodollars: 1 }))))
    expect(/id="verdict" class="bad">([^<]*)/.exec(dom)?.[1]).toContain(
      `1 of 133 lines cannot be proved: line 8 (${leafOf(whole, 7).id})`,
    )
    const rows = dom.match(/<tr class="bad">.*?<\/tr>/gs) ?? []
    expect(rows).toHaveLength(1)
    expect(rows[0]).toContain(leafOf(whole, 7).id)
    expect(rows[0]).toContain('its content is not what was signed')
  })

  test('refuses a forged signature', () => {
    const forged = edited((bundle) => (bundle.checkpoint = bundle.checkpoint.replace(/\n\d+\n/, '\n9\n')))
    expect(opened('forged', verifyPage(JSON.stringify(forged)))).toMatch(/class="bad">[^<]*signature[^<]*is not valid/)
  })
})
if (CHROMIUM === undefined) process.stderr.write('skipped: no chromium here to open the verifier page with\n')
