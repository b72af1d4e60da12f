import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { verifyCheckpoint } from '../../src/audit/checkpoint.ts'
import { hashLeaf } from '../../src/audit/hash.ts'
import { parseVerifierKey, WITNESS_KEY } from '../../src/audit/note-key.ts'
import { consistencyFault, inclusionFault } from '../../src/audit/verify.ts'
import { readConsistency, readInclusion } from '../../src/audit/wire.ts'
import { openReader } from '../../src/ledger/database.ts'
import { leafCounter } from '../../src/ledger/leaf-numbers.ts'
import { signedSize } from '../../src/ledger/ledger-log.ts'
import { ADMIN_TOKEN, DEMO_KEY, startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { good } from './folder.ts'

setDefaultTimeout(60_000)

const MAIN = resolve(import.meta.dir, '../../src/main.ts')
const folder = tempFolder('weir-audit-api')
let house: TestHouse
let early = ''
let other_key = ''
const bodies = Array.from({ length: 6 }, (_, n) =>
  JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: `call ${n}` }], max_tokens: 3 }),
)
const ids: string[] = []
const answers: string[] = []

beforeAll(async () => {
  house = await startHouse({ data: `${folder.path}/data` })
  await house.admin('POST', 'tenants', { name: 'other' })
  other_key = await house.key('other')
  for (const body of bodies) {
    const response = await house.post('/v1/chat/completions', body)
    ids.push(response.headers.get('x-weir-call-id')!)
    answers.push(await response.text())
  }
  for (let n = 0; n < 30; n++) await house.post('/v1/chat/completions', bodies[0]!, `wrong-${n}`)
  await house.rowsReach(bodies.length)
  early = (await eventually(
    async () => (await proof(ids[0]!)).status === 200 && isCopied() && (await audit('checkpoint')).text,
  )) as string
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

/** Whether the admin action of the start is a row, and every row is signed. */
const isCopied = (): boolean => {
  const { sqlite } = openReader(house.data, 'ledger')
  const actions = sqlite.prepare('SELECT 1 FROM admin_actions').all().length
  const rows = leafCounter(sqlite)()
  sqlite.close()
  return actions > 0 && signedSize(join(house.data, 'audit')) === rows
}
const audit = async (path: string) => {
  const response = await fetch(`${house.ops_url}/audit/${path}`, {
    headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
  })
  const text = await response.text()
  return {
    status: response.status,
    type: response.headers.get('content-type') ?? '',
    text,
    json: () => JSON.parse(text),
  }
}
const proof = (id: string, key = DEMO_KEY, query = '') =>
  fetch(`${house.url}/v1/calls/${id}/proof${query}`, { headers: { authorization: `Bearer ${key}` } })
const weir = (...argv: string[]) => {
  const env = { ...process.env, WEIR_ADMIN_TOKEN: ADMIN_TOKEN }
  const { exitCode, stdout, stderr } = Bun.spawnSync([process.execPath, MAIN, ...argv], { env })
  return { code: exitCode, out: stdout.toString(), err: stderr.toString() }
}
const command = (...argv: string[]) => weir(...argv, '--ops', house.ops_url, '--data', house.data)
const file = (name: string, text: string): string => {
  const path = join(folder.path, name)
  writeFileSync(path, text)
  return path
}

test('the checkpoint verifies under the served key, and every leaf and proof under the checkpoint', async () => {
  const key = (await audit('public-key')).json()
  const { checkpoint } = good(verifyCheckpoint(early, [good(parseVerifierKey(key.verifier_key))]))
  expect(key).toMatchObject({ origin: checkpoint.origin, keys: [key.verifier_key] })
  expect(Buffer.from(key.public_key, 'base64')).toHaveLength(32)
  const types = new Set<string>()
  for (let index = 0; index < checkpoint.size; index++) {
    const entry = (await audit(`entries/${index}`)).json()
    expect(entry.index).toBe(index)
    const leaf = Buffer.from(entry.leaf, 'base64')
    expect(JSON.parse(leaf.toString())).toEqual(entry.entry)
    types.add(entry.entry.type)
    const claim = good(readInclusion((await audit(`inclusion?index=${index}&size=${checkpoint.size}`)).json()))
    expect(Buffer.from(claim.leaf_hash)).toEqual(Buffer.from(hashLeaf(leaf)))
    expect(Buffer.from(claim.root)).toEqual(Buffer.from(checkpoint.root))
    expect(inclusionFault(claim)).toBeUndefined()
  }
  expect([...types].toSorted()).toEqual(['admin_action', 'call', 'price'])
  for (let from = 1; from <= checkpoint.size; from++) {
    const claim = good(readConsistency((await audit(`consistency?from=${from}&to=${checkpoint.size}`)).json()))
    expect(consistencyFault(claim)).toBeUndefined()
  }
})

test.each([
  ['entries/9999', 404],
  ['entries/x', 404],
  ['inclusion', 400],
  ['inclusion?index=9999', 400],
  ['consistency?from=0', 400],
  ['consistency?from=5&to=2', 400],
  ['tile/0/x1', 404],
  ['tile/9/000', 404],
])('/audit/%s is %d and says why', async (path, status) => {
  const answer = await audit(path)
  expect(answer.status).toBe(status)
  expect(answer.json().error.message).not.toBe('')
})

test('tiles lead to the signed root, as a monitor computes it', async () => {
  const { size, root } = { size: Number(early.split('\n')[1]), root: early.split('\n')[2]! }
  const hashes = Buffer.from(
    await (
      await fetch(`${house.ops_url}/audit/tile/0/000.p/${size}`, {
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      })
    ).arrayBuffer(),
  )
  expect(hashes).toHaveLength(32 * size)
  const all = Array.from({ length: size }, (_, n) => new Uint8Array(hashes.subarray(32 * n, 32 * n + 32)))
  const { mthOfHashes } = await import('./reference.ts').then((reference) => ({ mthOfHashes: reference.mth }))
  expect(Buffer.from(mthOfHashes(all)).toString('base64')).toBe(root)
})

test('a tenant proves its own call, and its bodies; others and strangers find nothing', async () => {
  // A leaf is signed within a second.
  const text = await eventually(async () => {
    const answer = await proof(ids[1]!)
    if (answer.status !== 200) throw new Error(`status ${answer.status}`)
    return answer.text()
  })
  const bundle = JSON.parse(text)
  expect(bundle).toMatchObject({ format: 'weir-proof/1', kind: 'call' })
  const leaf = JSON.parse(Buffer.from(bundle.lines[0].leaf, 'base64').toString())
  expect(leaf).toMatchObject({ type: 'call', id: ids[1], tenant: 'demo' })
  const salted = (body: string) =>
    Bun.SHA256.hash(
      Buffer.concat([Buffer.from(bundle.lines[0].salt, 'hex'), Buffer.from(Bun.SHA256.hash(body, 'hex'), 'hex')]),
      'hex',
    )
  expect(leaf.request_sha256).toBe(salted(bodies[1]!))
  expect(leaf.response_sha256).toBe(salted(answers[1]!))
  expect(leaf.request_sha256).not.toBe(Bun.SHA256.hash(bodies[1]!, 'hex'))
  expect((await proof(ids[1]!, other_key)).status).toBe(404)
  expect((await proof(ids[1]!, 'wrong')).status).toBe(401)
  expect((await proof('call_nope')).status).toBe(404)
  expect((await proof(ids[1]!, DEMO_KEY, '?from=x')).status).toBe(400)
  expect((await house.admin('GET', `calls/${ids[1]}/proof`)).status).toBe(200)

  const path = file('call.json', text)
  expect(weir('verify', path)).toMatchObject({ code: 0, err: '' })
  const { verifier_key } = (await audit('public-key')).json()
  expect(weir('verify', path, '--key', verifier_key).out).toMatch(
    new RegExp(`call ${ids[1]} of demo, .* tokens, 0[.][0-9]+ USD`),
  )
  const broken = {
    ...bundle,
    lines: [
      { ...bundle.lines[0], leaf: Buffer.from(JSON.stringify({ ...leaf, charge_nanodollars: 1 })).toString('base64') },
    ],
  }
  const refused = weir('verify', file('broken.json', JSON.stringify(broken)))
  expect(refused.code).toBe(1)
  expect(refused.err).toContain(`line 0 (${ids[1]}) is not in the log`)
})

test('a proof is held against a checkpoint that was kept, by a consistency proof in between', async () => {
  const saved = file('saved.txt', early)
  const kept_size = Number(early.split('\n')[1])
  const response = await house.post('/v1/chat/completions', bodies[0]!)
  const id = response.headers.get('x-weir-call-id')!
  await response.text()
  await eventually(async () => (await proof(id)).status === 200, 4_000)
  const alone = file('later.json', await (await proof(id)).text())
  expect(weir('verify', alone, '--checkpoint', saved).err).toContain('--consistency')
  const between = file('between.json', (await audit(`consistency?from=${kept_size}`)).text)
  const later = await (await proof(id, DEMO_KEY, `?from=${kept_size}`)).text()
  expect(weir('verify', file('linked.json', later), '--checkpoint', saved)).toMatchObject({ code: 0 })
  expect(weir('verify', between, '--checkpoint', saved)).toMatchObject({ code: 0 })
  const forged = early.replace(early.split('\n')[2]!, Buffer.alloc(32, 7).toString('base64'))
  expect(weir('verify', file('linked.json', later), '--checkpoint', file('forged.txt', forged)).err).toContain(
    'history was rewritten',
  )
})

test('rotation: both keys sign one checkpoint, the new one signs on, old proofs still verify', async () => {
  const old_proof = file('old.json', await (await proof(ids[0]!)).text())
  const rotated = await house.admin('POST', 'audit/rotate')
  expect(rotated.status).toBe(200)
  const { verifier_key, checkpoint } = (await rotated.json()) as Record<string, string>
  expect(command('audit', 'public-key').out).toContain(`${verifier_key}\n`)
  // A row of a moment ago may be signed between the two questions.
  await eventually(async () => expect(command('audit', 'checkpoint').out).toBe((await audit('checkpoint')).text))
  expect(command('audit', 'checkpiont').err).toContain('did you mean checkpoint')
  expect(checkpoint!.split('\n\n')[1]!.trim().split('\n')).toHaveLength(2)
  const { keys } = (await audit('public-key')).json()
  expect(keys).toHaveLength(2)
  expect(keys[1]).toBe(verifier_key)
  // The rotation is itself an action, so a new checkpoint follows.
  await eventually(async () => {
    const note = (await audit('checkpoint')).text
    const signed = good(
      verifyCheckpoint(
        note,
        keys.map((key: string) => good(parseVerifierKey(key))),
      ),
    )
    expect(signed.signed_by).toHaveLength(1)
    expect(signed.signed_by[0]!.key.type).not.toBe(WITNESS_KEY)
  }, 4_000)
  expect(weir('verify', old_proof).code).toBe(0)
  expect(weir('verify', file('new.json', await (await proof(ids[0]!)).text()), '--key', verifier_key!).code).toBe(0)
})

test('salts of a tenant are erased: its rows prove as before, its bodies no more; then the house stops, and fsck is content', async () => {
  expect((await house.admin('POST', 'audit/erase-salts', { tenant: 'demp' })).status).toBe(404)
  const erased = await house.admin('POST', 'audit/erase-salts', { tenant: 'demo' })
  expect(await erased.json()).toEqual({ erased: bodies.length + 1 })
  const text = await (await proof(ids[2]!)).text()
  expect(JSON.parse(text).lines[0].salt).toBeNull()
  expect(weir('verify', file('erased.json', text)).code).toBe(0)
  expect(weir('fsck', '--data', house.data)).toMatchObject({ code: 1, err: expect.stringContaining('running house') })
  expect(await house.stop()).toBe(0)
  expect(weir('fsck', '--data', house.data, '--checkpoint', file('saved.txt', early))).toMatchObject({
    code: 0,
    err: '',
  })
  const { Database } = await import('bun:sqlite')
  const db = new Database(`${house.data}/ledger.db`, { readonly: true })
  const refused = db
    .query(
      'SELECT key_id, failure, sum(count) AS times, count(*) AS lines FROM refusals WHERE failure = ? GROUP BY 1, 2',
    )
    .all('key_invalid') as { key_id: string; times: number; lines: number }[]
  db.close()
  expect(refused[0]!.key_id).toBe('')
  expect(refused[0]!.times).toBeGreaterThanOrEqual(31)
  expect(refused[0]!.lines).toBeLessThanOrEqual(2)
})
