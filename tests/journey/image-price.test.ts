import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { resolve } from 'node:path'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { CH, D, DONE, end, json, never, script, sse200, US, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** The price for a picture: held, charged, on the invoice, and the same wherever it is computed again. */

const engine = startHostileEngine({
  answers: (request) => {
    const { stream, user } = request.json()
    if (user === 'leaves') return script(sse200, D(CH({ content: 'a' })), never)
    return stream
      ? script(sse200, D(CH({ content: 'a' })), D(CH({}, 'stop')), D(US(1_000, 100)), DONE, end)
      : json(200, WHOLE('a', 1_000, 100))
  },
})
const down = startHostileEngine({ answers: [json(503, { error: { message: 'no' } })] })
const targets = [{ engine: 'e' }]
const price = { input: '2', output: '8', image: '0.0015', request: '0.0001' }
let house: TestHouse
let key: string

beforeAll(async () => {
  const config = {
    engines: [
      { name: 'e', url: engine.url, probe_ms: 0, scrape_ms: 0 },
      { name: 'd', url: down.url, probe_ms: 0, scrape_ms: 0 },
    ],
    models: [
      { name: 'seeing', targets, price },
      { name: 'plain', targets, price: { input: '2', output: '8' } },
      { name: 'falls', targets: [{ engine: 'd' }], price: { input: '2', output: '8' }, fallbacks: ['seeing'] },
      { name: 'falls_twice', targets: [{ engine: 'd' }], price: { input: '2', output: '8' }, fallbacks: ['falls'] },
    ],
    tenants: [{ name: 't' }, { name: 'poor', budgets: [{ usd: '0.2' }] }],
  }
  house = await startHouse({ config })
  key = await house.key('t')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
  await down.stop()
})

const picture = { type: 'image_url', image_url: { url: 'https://example.org/a.png' } }
const sound = { type: 'input_audio', input_audio: { data: 'A', format: 'wav' } }
const ask = (model: string, pictures: number, more: object = {}, secret = key, signal?: AbortSignal) => {
  const content = [{ type: 'text', text: 'what?' }, sound, ...Array.from({ length: pictures }, () => picture)]
  return house.post(
    '/v1/chat/completions',
    { model, messages: [{ role: 'user', content }], ...more },
    secret,
    {},
    signal,
  )
}
const rowOf = (response: Response) =>
  eventually(() => {
    const found = house.rows().find(({ id }) => id === response.headers.get('x-weir-call-id'))
    if (found === undefined) throw new Error('no row yet')
    return found
  }, 5_000)

/** Of 1,000 tokens read and 100 made, and the request. */
const TOKENS = 2_000_000 + 800_000
const REQUEST = 100_000
const IMAGE = 1_500_000

test('each picture is charged, whole and streamed; a sound is none', async () => {
  for (const pictures of [0, 1, 3])
    for (const stream of [false, true]) {
      const response = await ask('seeing', pictures, { stream })
      await response.text()
      const row = await rowOf(response)
      const owed = TOKENS + REQUEST + pictures * IMAGE
      expect(row).toMatchObject({ images: pictures, charge_nanodollars: owed })
      if (!stream) expect(Number(response.headers.get('x-weir-cost-usd'))).toBe(owed / 1e9)
    }
})

test('a model without the price: nothing is counted; a fallback with it: its price is charged', async () => {
  const plain = await ask('plain', 2)
  await plain.text()
  expect(await rowOf(plain)).toMatchObject({ images: 0, charge_nanodollars: TOKENS })
  for (const model of ['falls', 'falls_twice']) {
    const fell = await ask(model, 2)
    expect(fell.status).toBe(200)
    await fell.text()
    expect(await rowOf(fell)).toMatchObject({
      model: 'seeing',
      images: 2,
      charge_nanodollars: TOKENS + REQUEST + 2 * IMAGE,
    })
  }
})

test('a client that leaves pays for the pictures as well, since the engine has read them', async () => {
  const leaving = new AbortController()
  const response = await ask('seeing', 2, { stream: true, user: 'leaves' }, key, leaving.signal)
  const reader = response.body!.getReader()
  await reader.read()
  leaving.abort()
  reader.read().catch(() => undefined)
  const row = await rowOf(response)
  const tokens = (row['prompt_tokens'] as number) * 2_000 + (row['completion_tokens'] as number) * 8_000
  expect(row).toMatchObject({ images: 2, ending: 'cut_by_client', charge_nanodollars: tokens + REQUEST + 2 * IMAGE })
})

test('the hold has them: what a budget cannot pay is not asked for', async () => {
  const poor = await house.key('poor')
  const hold = async (pictures: number) => {
    const response = await ask('seeing', pictures, { max_tokens: 10 }, poor)
    await response.text()
    return response.status === 200 ? ((await rowOf(response))['hold_nanodollars'] as number) : response
  }
  const [none, one] = [await hold(0), await hold(1)]
  // Its own price, and the tokens that a picture can be at most, less nothing.
  expect((one as number) - (none as number)).toBeGreaterThan(IMAGE)
  const asked = engine.requests.length
  const refused = (await hold(200)) as Response
  // More than the whole budget: no waiting helps.
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([400, null])
  expect(engine.requests.length).toBe(asked)
})

test('the invoice shows them, and every other reckoning agrees', async () => {
  const month = new Date().toISOString().slice(0, 7)
  const invoice = (await (await house.admin('GET', `invoices/t/${month}`)).json()) as any
  const line = invoice.lines.find((one: any) => one.model === 'seeing')
  // 0 + 1 + 3, twice; two each of the calls that fell back; and two of the client that left.
  expect(line.images).toBe(14)
  const csv = await (await house.admin('GET', `invoices/t/${month}?format=csv`)).text()
  const [head, ...lines] = csv.split('\r\n').map((row) => row.split(','))
  const seeing = lines.find((row) => row[2] === 'seeing')!
  expect(seeing[head!.indexOf('images')]).toBe('14')

  expect(await house.stop()).toBe(0)
  const db = new Database(`${house.data}/ledger.db`, { readonly: true })
  const rows = db.query('SELECT * FROM calls WHERE model = ?').all('seeing') as Record<string, number>[]
  db.close()
  for (const row of rows)
    expect(row['charge_nanodollars']).toBe(
      row['prompt_tokens']! * 2_000 + row['completion_tokens']! * 8_000 + REQUEST + row['images']! * IMAGE,
    )
  const main = resolve(import.meta.dir, '../../src/main.ts')
  for (const command of [['fsck'], ['ledger', 'rebuild', '--check']]) {
    const ran = Bun.spawnSync([process.execPath, main, ...command, '--data', house.data])
    expect([command, ran.exitCode, ran.exitCode === 0 ? '' : `${ran.stdout}${ran.stderr}`]).toEqual([command, 0, ''])
  }
})
