import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync, writeFileSync } from 'node:fs'
import type { HostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, rollFrom } from '../kit/wait.ts'
import { call, houseConfig, marked, markedEngine, rowsByBody, markOf, startTraffic } from './traffic.ts'

setDefaultTimeout(60_000)

let engine: HostileEngine
let house: TestHouse
let key: string
let first: ReturnType<typeof houseConfig>

beforeAll(async () => {
  engine = markedEngine()
  first = houseConfig(engine.url)
  house = await startHouse({ config: first, workers: 2 })
  key = await house.key('acme')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const reload = async (config: object | string, event = 'reloaded'): Promise<Record<string, any>> => {
  const before = house.logged(event).length
  writeFileSync(house.config_file, typeof config === 'string' ? config : JSON.stringify(config))
  house.kill('SIGHUP')
  return await eventually(() => {
    const line = house.logged(event)[before]
    if (line === undefined) throw new Error(`no ${event}`)
    return line
  }, 5_000)
}

const swapped = async (generation: number): Promise<void> => {
  await eventually(
    () => house.logged('configuration_swapped').filter((line) => line['generation'] === generation).length === 2,
    3_000,
  )
}

const ask = async (model: string): Promise<number> =>
  (await house.post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'hi' }] }, key)).status

const model = (name: string, input: string) => ({
  name,
  targets: [{ engine: 'e1', model: 'm1' }],
  price: { input, output: '2' },
})

describe('SIGHUP', () => {
  test('a good configuration is swapped whole: a new model serves, a removed one is unknown, prices change; no call fails', async () => {
    const traffic = startTraffic(house, key, 'reload', 4, rollFrom(3))
    expect(await ask('m1')).toBe(200)
    const { generation } = await reload({ ...first, models: [model('m1', '1'), model('m2', '7')] })
    await swapped(generation)
    expect(await ask('m2')).toBe(200)
    const dearer = await reload({ ...first, models: [model('m1', '1000'), model('m3', '1')] })
    await swapped(dearer['generation'])
    expect(await ask('m2')).toBe(404)
    expect(await ask('m3')).toBe(200)
    const late = marked('dear', false)
    expect((await call(house.url, key, late)).status).toBe(200)
    await traffic.stop()
    expect(traffic.seen.filter(({ status, whole }) => status !== 200 || !whole)).toEqual([])
    await eventually(() => rowsByBody(house.data).get(markOf(late)) === 1, 3_000)

    const rows = house.rows()
    // 5 prompt tokens, 1 completion token.
    const charges = (name: string) =>
      new Set(rows.filter((row) => row['model'] === name).map((row) => row['charge_nanodollars']))
    expect(charges('m2')).toEqual(new Set([5 * 7000 + 2000]))
    const dear = rows.find((row) => row['end_user'] === markOf(late))!
    expect(dear['charge_nanodollars']).toBe(5 * 1_000_000 + 2000)
    expect(rows.filter((row) => row['price_version'] === 0)).toEqual([])
    await reload(first)
  })

  test('what is sold has its price in the ledger before: the first call of a new model, at once, is charged', async () => {
    for (let n = 0; n < 5; n++) {
      const name = `new-${n}`
      writeFileSync(house.config_file, JSON.stringify({ ...first, models: [model('m1', '1'), model(name, '3')] }))
      house.kill('SIGHUP')
      await eventually(async () => (await ask(name)) === 200, 3_000)
    }
    await eventually(() => house.rows().filter((row) => String(row['model']).startsWith('new-')).length >= 5, 3_000)
    const rows = house.rows().filter((row) => String(row['model']).startsWith('new-'))
    expect(new Set(rows.map((row) => row['charge_nanodollars']))).toEqual(new Set([5 * 3000 + 2000]))
    await reload(first)
  })

  test('a faulty one keeps the old and logs every fault', async () => {
    const faulty = {
      ...first,
      engine: [],
      models: [{ ...first.models[0], targets: [{ engine: 'e2' }] }],
      server: { grace_ms: -1 },
    }
    const line = await reload(faulty, 'reload_refused')
    expect(line['level']).toBe('error')
    expect(line['faults'].length).toBeGreaterThanOrEqual(2)
    expect(line['faults'].join('\n')).toContain('engine')
    expect(line['faults'].join('\n')).toContain('server.grace_ms')
    expect(await ask('m1')).toBe(200)
    expect((await reload('models: [', 'reload_refused'))['faults'].length).toBe(1)
    expect(await ask('m1')).toBe(200)
    const current = (await (await house.admin('GET', 'config')).json()) as { generation: number }
    expect(current.generation).toBe(line['kept_generation'])
    expect(house.logged('process_died')).toEqual([])
    await reload(first)
  })

  test('a file that is gone keeps the old: a house does not become an empty one', async () => {
    rmSync(house.config_file)
    const before = house.logged('reload_refused').length
    house.kill('SIGHUP')
    await eventually(() => house.logged('reload_refused').length > before, 3_000)
    expect(await ask('m1')).toBe(200)
    await reload(first)
  })

  test('a port cannot change under running clients: it is ignored with a line that says so, the rest is swapped', async () => {
    const before = house.logged('settings_ignored').length
    await reload({ ...first, server: { subjects_max: 128 }, models: [model('m4', '1'), model('m1', '1')] })
    await eventually(async () => (await ask('m4')) === 200, 2_000)
    const line = house.logged('settings_ignored')[before]!
    expect(line['level']).toBe('warn')
    expect(line['settings'].join('\n')).toContain('server.subjects_max: 16384 until a restart, now 128')
    await reload(first)
  })

  test('the ledger is locked: workers keep the old configuration until the accountant has the prices', async () => {
    const holder = new Database(`${house.data}/ledger.db`)
    holder.run('PRAGMA busy_timeout = 5000')
    holder.run('BEGIN IMMEDIATE')
    try {
      writeFileSync(house.config_file, JSON.stringify({ ...first, models: [model('m1', '1'), model('m5', '1')] }))
      house.kill('SIGHUP')
      await eventually(() => house.logged('prices_postponed').length > 0, 3_000)
      expect(await ask('m5')).toBe(404)
      expect(await ask('m1')).toBe(200)
    } finally {
      holder.run('ROLLBACK')
      holder.close()
    }
    await eventually(async () => (await ask('m5')) === 200, 3_000)
    expect(house.logged('process_died')).toEqual([])
    await reload(first)
  })

  test('the port of a flag is no setting of the file', async () => {
    // The house runs on ports given by flags, and a flag beats the file: nothing changes, nothing is told.
    const before = house.logged('settings_ignored').length
    await reload({ ...first, server: { port: 9999 } })
    expect(house.logged('settings_ignored').length).toBe(before)
    expect(await ask('m1')).toBe(200)
    expect(await house.stop()).toBe(0)
  })
})

test('a port of the file: ignored until a restart, and said', async () => {
  await using own = markedEngine()
  const config = { ...houseConfig(own.url), server: { port: 0 } }
  await using other = await startHouse({ config, bare: true })
  writeFileSync(
    other.config_file,
    JSON.stringify({ ...config, server: { ...config.server, ops_port: 0, port: 18_080 } }),
  )
  other.kill('SIGHUP')
  await eventually(() => other.logged('settings_ignored').length === 1, 3_000)
  expect(other.logged('settings_ignored')[0]!['settings']).toEqual(['server.port: 0 until a restart, now 18080'])
  await eventually(() => other.logged('reloaded').length === 1, 3_000)
  expect(await (await fetch(`${other.url}/health`)).text()).toBe('OK')
  expect(await other.stop()).toBe(0)
})

test('from nothing configured to engines and back: the demo engine is there when it is wanted', async () => {
  await using own = markedEngine()
  await using other = await startHouse({ config: houseConfig(own.url) })
  writeFileSync(other.config_file, '')
  other.kill('SIGHUP')
  await eventually(() => other.logged('reloaded').length === 1, 5_000)
  expect(other.pids('demo').length).toBe(1)
  const mine = await other.key('demo')
  const answer = await other.post(
    '/v1/chat/completions',
    { model: 'demo', messages: [{ role: 'user', content: 'hi' }] },
    mine,
  )
  expect(answer.status).toBe(200)
  expect(await other.stop()).toBe(0)
})
