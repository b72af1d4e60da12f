import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { usd } from '../../src/base/money.ts'
import { checkProof } from '../../src/audit/bundle-check.ts'
import { openLogReader, type SharedLogReader } from '../../src/audit/read-side.ts'
import { verifyPage } from '../../src/dashboard/verify-page.ts'
import { openReader, openWriter, type Store } from '../../src/ledger/database.ts'
import { invoiceBundle } from '../../src/ledger/invoice-proofs.ts'
import { entryOfOrder } from '../../src/ledger/adjustment-posting.ts'
import type { OrderRow } from '../../src/ledger/house-tables.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { AT_MS } from '../ledger/make.ts'
import { freshFolder, good } from './folder.ts'
import { makeSmallHouse, ORIGIN } from './small-house.ts'

setDefaultTimeout(60_000)

const folder = freshFolder()
let store: Store
let reader: SharedLogReader
let keys: string[]
let whole: any
beforeAll(async () => {
  await makeSmallHouse(folder.path, 200, 1)
  postOrders()
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

/** Of acme in time: 1,000 refunded, 210 taken by adjustments, 5,000 granted; then one of acme later, and one of globex. */
const ORDERS: readonly (readonly [kind: OrderRow['kind'], tenant: string, amount: bigint, after_ms: number])[] = [
  ['refund', 'acme', 1_000n, 5],
  ['adjustment', 'acme', -250n, 6],
  ['adjustment', 'acme', 40n, 7],
  ['grant', 'acme', 5_000n, 8],
  ['refund', 'acme', 77n, 5_000],
  ['refund', 'globex', 3n, 9],
]
const postOrders = () => {
  const writer = openWriter(folder.path, 'ledger')
  const poster = createPoster(writer, 'logged')
  for (const [nth, [kind, tenant, amount_nanodollars, after_ms]] of ORDERS.entries()) {
    const order = { n: nth + 1, id: `order_${nth}`, actor: 'admin', call_id: null, reason: `why ${nth}` }
    const entry = entryOfOrder({ ...order, at_ms: AT_MS + after_ms, kind, tenant, amount_nanodollars })
    expect(poster.order({ n: order.n, order_id: order.id }, entry)).toEqual({ is: 'posted' })
  }
  writer.sqlite.close()
  const ledger_log = openLedgerLog(folder.path, join(folder.path, 'audit'), ORIGIN)
  good(ledger_log.follow(1_000))
  good(ledger_log.log.checkpoint())
  ledger_log.close()
}

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
const changedEntry = (line: number, change: object) =>
  changedLeaf(whole, line, { entries: [{ ...leafOf(whole, line).entries[0], ...change }] })
const bundleOf = (tenant: string, after_ms = 0) =>
  JSON.parse(textOf(tenant, AT_MS + after_ms, AT_MS + after_ms + 1_000))
const withoutOrders = (tenant: string) => ({ lines: bundleOf(tenant).lines.slice(0, 1) })
const edited = (edit: (bundle: any) => void) => {
  const copy = structuredClone(whole)
  edit(copy)
  return copy
}

/** With a line of another bundle, whose proof holds. */
const withLineOf = (other: any) =>
  edited((bundle) => {
    const before = bundle.nodes.length
    bundle.nodes.push(...other.nodes)
    const line = other.lines.at(-1)
    bundle.lines.push({ ...line, path: line.path.map((node: number) => node + before) })
  })
/** As an earlier version made it: calls alone. */
const older = () =>
  edited((bundle) => {
    bundle.format = 'weir-proof/1'
    bundle.lines = bundle.lines.slice(0, 133)
    for (const name of Object.keys(bundle.invoice))
      if (!['tenant', 'from_ms', 'to_ms', 'calls', 'charge_nanodollars'].includes(name)) delete bundle.invoice[name]
  })

test('every line of an invoice is proved, and the sums are theirs', () => {
  const charged = BigInt(whole.invoice.charge_nanodollars)
  const calls = Array.from({ length: 133 }, (_, nth) => BigInt(leafOf(whole, nth).charge_nanodollars))
  expect(calls.reduce((sum, charge) => sum + charge, 0n)).toBe(charged)
  expect(whole.format).toBe('weir-proof/2')
  expect(whole.invoice).toMatchObject({
    calls: 133,
    orders: 4,
    refunds_nanodollars: '1000',
    adjustments_nanodollars: '-210',
    grants_nanodollars: '5000',
    total_nanodollars: String(charged - 1_000n + 210n),
  })
  expect(whole.lines).toHaveLength(137)
  const { says } = checkProof(JSON.stringify(whole), trust)
  expect(says.at(-1)).toContain(`133 calls, ${usd(charged)} USD of charges; 4 orders: 0.000001 USD of refunds`)
  expect(says.at(-1)).toContain(`${usd(charged - 790n)} USD owed, every line in the log`)
})

test('a bundle of before orders had proofs is sound, and says what it leaves out', () => {
  const { says } = checkProof(JSON.stringify(older()), trust)
  expect(says.at(-1)).toEndWith('every line in the log; refunds, adjustments and grants are not in this file')
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
  ['a call left out', () => edited((bundle) => bundle.lines.shift()), /says 133 calls, and its lines are 132/],
  ['an order left out', () => edited((bundle) => bundle.lines.pop()), /says 4 orders, and its lines are 3/],
  ['an order', () => changedEntry(133, { amount_nanodollars: 1_000_000 }), /^line 133 is not in the log/],
  ['whose order it is', () => changedEntry(134, { credit: 'tenant:globex' }), /^line 134 is not in the log/],
  ['an order of another tenant', () => withLineOf(bundleOf('globex')), /^line 137 has no order of the invoice/],
  ['an order of another time', () => withLineOf(bundleOf('acme', 5_000)), /^line 137 has no order of the invoice/],
  [
    'a call of another tenant',
    () => withLineOf({ ...bundleOf('globex'), ...withoutOrders('globex') }),
    /of tenant "gl/,
  ],
  ['the refunds', () => edited(({ invoice }) => (invoice.refunds_nanodollars = '1')), /says 1 refunds_nanodollars/],
  ['the adjustments', () => edited(({ invoice }) => (invoice.adjustments_nanodollars = '210')), /lines make -210$/],
  ['the grants', () => edited(({ invoice }) => (invoice.grants_nanodollars = '0')), /says 0 grants_nanodollars/],
  ['what is owed', () => edited(({ invoice }) => (invoice.total_nanodollars = '0')), /says 0 total_nanodollars/],
  ['the number of orders', () => edited(({ invoice }) => (invoice.orders = '4')), /^line 133|says 4 orders/],
  ['that it has orders', () => edited(({ invoice }) => delete invoice.orders), /^line 133 is no call but "entries"/],
  [
    'a line twice',
    () => edited((bundle) => bundle.lines.push(bundle.lines[0])),
    /line 137 proves leaf \d+, as a line before/,
  ],
  [
    'two lines swapped in their numbers',
    () => edited(({ lines: [one, other] }) => ([one.index, other.index] = [other.index, one.index])),
    /^line [01] /,
  ],
  ['a node', () => edited((bundle) => (bundle.nodes[3] = Buffer.alloc(32, 1).toString('base64'))), /is not in the log/],
  ['a missing node', () => edited((bundle) => bundle.nodes.pop()), /needs node \d+/],
  ['a shorter path', () => edited((bundle) => bundle.lines[5].path.pop()), /^line 5 .*fewer nodes/],
  [
    'the sum',
    () => edited((bundle) => (bundle.invoice.charge_nanodollars = '1')),
    /the invoice says 1 charge_nanodollars/,
  ],
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
    expect(/id="verdict" class="good">([^<]*)/.exec(dom)?.[1]).toMatch(
      /Sound: all 137 lines are in the log, and they make [\d.]+ USD owed/,
    )
    expect(dom.match(/<td class="state good">✓ in the log/g)).toHaveLength(137)
    expect(dom).toContain(`make ${usd(BigInt(whole.invoice.total_nanodollars))} USD owed`)
    expect(dom).toContain('<td class="words">refund: why 0</td>')
    expect(dom).toContain('<td class="number">-0.000001</td>')
    expect(dom).toContain('<td class="words">grant of 0.000005: why 3</td>')
    expect(dom).not.toContain('class="bad"')
  })

  test('shows the broken line of a bad one', () => {
    const dom = opened('bad', verifyPage(JSON.stringify(changedLeaf(whole, 7, { charge_nanodollars: 1 }))))
    expect(/id="verdict" class="bad">([^<]*)/.exec(dom)?.[1]).toContain(
      `1 of 137 lines cannot be proved: line 8 (${leafOf(whole, 7).id})`,
    )
    const rows = dom.match(/<tr class="bad">.*?<\/tr>/gs) ?? []
    expect(rows).toHaveLength(1)
    expect(rows[0]).toContain(leafOf(whole, 7).id)
    expect(rows[0]).toContain('its content is not what was signed')
  })

  test.each([
    [
      'an order left out',
      () => edited((bundle) => bundle.lines.pop()),
      /the invoice says 4 orders, and its lines are 3/,
    ],
    [
      'the refunds',
      () => edited(({ invoice }) => (invoice.refunds_nanodollars = '9')),
      /USD of refunds, and its lines/,
    ],
    [
      'what is owed',
      () => edited(({ invoice }) => (invoice.total_nanodollars = '-5')),
      /-0.000000005 USD owed, and its/,
    ],
    ['an order of another tenant', () => withLineOf(bundleOf('globex')), /1 of 138 lines cannot be proved: line 138/],
    ['a bundle of before', older, /Sound: all 133 lines [^<]* refunds and adjustments are not in this file/],
  ])('%s: says so', (name, bundle, says) =>
    expect(
      /id="verdict" class="\w+">([^<]*)/.exec(
        opened(name.replaceAll(' ', '-'), verifyPage(JSON.stringify(bundle()))),
      )?.[1],
    ).toMatch(says),
  )

  test('refuses a forged signature', () => {
    const forged = edited((bundle) => (bundle.checkpoint = bundle.checkpoint.replace(/\n\d+\n/, '\n9\n')))
    expect(opened('forged', verifyPage(JSON.stringify(forged)))).toMatch(/class="bad">[^<]*signature[^<]*is not valid/)
  })
})
if (CHROMIUM === undefined) process.stderr.write('skipped: no chromium here to open the verifier page with\n')
