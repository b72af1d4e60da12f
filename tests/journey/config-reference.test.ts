import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** CASES C52: references have one rule, at the start, after a reload, and in what the admin API shows and takes. */

const ENV = {
  K_ONE: 'sk-one$b${K_TWO}\r\n',
  K_TWO: ' sk-two$$\n',
  NAME_ONE: 'one\n',
  NAME_TWO: 'two',
  ENGINE_NAME: 'e',
  CAPACITY: '7',
  EMPTY: '',
}
/** A file whose references are all in other variables for each `which`; with a byte-order mark and CRLF. */
const file = (which: 'ONE' | 'TWO', ...more: readonly string[]) =>
  [
    '\uFEFFengines:',
    `  - { name: "\${ENGINE_NAME}", url: "${engine.url}", key: "\${K_${which}}", capacity: "\${CAPACITY}", probe_ms: 0, scrape_ms: 0 }`,
    'models:',
    `  - { name: m, free: true, targets: [{ engine: "\${ENGINE_NAME}", model: "org/\${NAME_${which}}" }], fallbacks: ["\${NO_SUCH:-back}"] }`,
    '  - { name: back, free: true, targets: [{ engine: "${ENGINE_NAME}", model: "${EMPTY:-b}" }] }',
    `tenants: [{ name: acme, models: [m, "back"] }, { name: "tenant-\${NAME_${which}}" }]`,
    ...more,
    '',
  ].join('\r\n')

let engine: HostileEngine
let house: TestHouse
let key: string

beforeAll(async () => {
  engine = startHostileEngine({ answers: [json(200, WHOLE('hi', 5, 1))] })
  house = await startHouse({ text: file('ONE'), workers: 2, env: ENV })
  key = await house.key('acme')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

type Shown = { generation: number; config: any }
const shown = async (): Promise<Shown> => (await (await house.admin('GET', 'config')).json()) as Shown

/** The key and the model's name that the engine gets, from either worker: each call has a connection of its own. */
const heard = async (): Promise<unknown[]> => {
  const before = engine.requests.length
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  const calls = Array.from({ length: 12 }, () =>
    house.post('/v1/chat/completions', body, key, { connection: 'close' }).then((answer) => answer.status),
  )
  expect(new Set(await Promise.all(calls))).toEqual(new Set([200]))
  const seen = engine.requests.slice(before).map((one) => [one.header('authorization'), one.json().model])
  return [...new Map(seen.map((one) => [JSON.stringify(one), one])).values()]
}

/** Writes the file anew, reloads, and waits until control and both workers say that they have it. */
const reload = async (text: string): Promise<number> => {
  const before = house.logged('reloaded').length
  writeFileSync(house.config_file, text)
  house.kill('SIGHUP')
  return eventually(async () => {
    const generation = house.logged('reloaded')[before]!['generation'] as number
    const workers = house.logged('configuration_swapped').filter((line) => line['generation'] === generation)
    expect(workers).toHaveLength(2)
    expect((await shown()).generation).toBe(generation)
    return generation
  }, 5_000)
}

/** What is shown, down to what references gave. */
const told = ({ config: { engines, models, tenants } }: Shown) => ({
  engine: [engines[0].name, engines[0].key, engines[0].capacity],
  model: [models[0].targets[0], models[0].fallbacks, models[1].targets[0].model],
  tenants: tenants.map(({ name, models: of_tenant }: any) => [name, of_tenant]),
})
const expected = (name: string) => ({
  engine: ['e', '***', 7],
  model: [{ engine: 'e', model: `org/${name}`, weight: 1 }, ['back'], 'b'],
  tenants: [
    ['acme', ['m', 'back']],
    [`tenant-${name}`, undefined],
  ],
})

test('at the start the admin API shows what is in force, resolved, and no secret', async () => {
  expect(told(await shown())).toEqual(expected('one'))
  expect(JSON.stringify(await shown())).not.toContain('sk-')
  expect(await heard()).toEqual([['Bearer sk-one$b${K_TWO}', 'org/one']])
})

test('after a reload it shows the new references, and every worker uses them', async () => {
  const before = await shown()
  const generation = await reload(file('TWO'))
  expect(generation).toBeGreaterThan(before.generation)
  const after = await shown()
  expect(told(after)).toEqual(expected('two'))
  expect(JSON.stringify(after)).not.toContain('sk-')
  expect(await heard()).toEqual([['Bearer sk-two$$', 'org/two']])
  // A key for a tenant whose name is a reference.
  expect(await house.key('tenant-two')).toStartWith('weir_')
})

test('after a reload that is refused it shows the old, which is in force; the log names what is not set', async () => {
  const before = await shown()
  writeFileSync(house.config_file, file('ONE', 'server: { grace_ms: "${NOT_SET}" }'))
  house.kill('SIGHUP')
  const line = await eventually(() => house.logged('reload_refused')[0]!['faults'] as string[], 5_000)
  expect(line).toEqual(['server.grace_ms: the variable NOT_SET is not set; set it, or write ${NOT_SET:-default}'])
  expect(await shown()).toEqual(before)
  expect(await heard()).toEqual([['Bearer sk-two$$', 'org/two']])
})

test('and back', async () => {
  await reload(file('ONE'))
  expect(told(await shown())).toEqual(expected('one'))
  expect(await heard()).toEqual([['Bearer sk-one$b${K_TWO}', 'org/one']])
})

test('what comes through the admin API is no reference: kept as it was written, or refused, and never a way to a secret', async () => {
  const made = await house.admin('POST', 'keys', { tenant: 'acme', name: '${K_ONE} $$ ${WEIR_ADMIN_TOKEN}' })
  expect([made.status, ((await made.json()) as any).name]).toEqual([201, '${K_ONE} $$ ${WEIR_ADMIN_TOKEN}'])
  await reload(file('ONE'))
  const keys = (await (await house.admin('GET', 'keys')).json()) as { data: { name: string }[] }
  expect(keys.data.map(({ name }) => name)).toContain('${K_ONE} $$ ${WEIR_ADMIN_TOKEN}')
  for (const body of [{ name: '${NAME_ONE}' }, { name: 'x', models: ['${NAME_ONE}'] }]) {
    const refused = await house.admin('POST', 'tenants', body)
    expect(refused.status).toBe(400)
    expect(await refused.text()).not.toContain('one')
  }
  expect(await house.stop()).toBe(0)
})
