import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** The log says which configuration is in force, from the start on and after each reload. */

const sha256 = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')
const file = (...tenants: readonly string[]) =>
  [
    '\uFEFFengines: [{ name: e, url: "http://127.0.0.1:9/v1", probe_ms: 0, scrape_ms: 0 }]',
    'models: [{ name: m, free: true, targets: [{ engine: e }] }]',
    `tenants: [${tenants.map((name) => `{ name: ${name} }`).join(', ')}]`,
    '',
  ].join('\r\n')

let house: TestHouse
beforeAll(async () => {
  house = await startHouse({ text: file('acme') })
})
afterAll(() => house[Symbol.asyncDispose]())

const swap = async (change: () => unknown) => {
  const before = house.logged('reloaded').length
  await change()
  return eventually(() => {
    const lines = house.logged('reloaded')
    if (lines.length === before) throw new Error('no reload')
    return lines.at(-1)!
  }, 5_000)
}
const reload = (text: string) => {
  writeFileSync(house.config_file, text)
  house.kill('SIGHUP')
}
const shown = async (): Promise<{
  generation: number
  file: string
  sha256: string
  config: { tenants: { name: string }[] }
}> => (await (await house.admin('GET', 'config')).json()) as any
const counts = { engines: 1, models: 1 }

test('at the start: number, file and the hash of its bytes', async () => {
  expect(house.logged('configuration_in_force')).toMatchObject([
    { level: 'info', generation: 1, file: expect.stringContaining('weir.yaml'), ...counts, tenants: 1 },
  ])
  expect(house.logged('configuration_in_force')[0]!['sha256']).toBe(sha256(file('acme')))
})

test('nothing that was not there is told as kept or loaded', () => {
  expect(house.logged('limits_kept')).toEqual([])
  expect(house.logged('budgets_loaded')).toEqual([])
})

test('after a reload: those of the new file, and the number that the admin API shows', async () => {
  const line = await swap(() => reload(file('acme', 'beta')))
  expect(line).toMatchObject({ generation: 2, sha256: sha256(file('acme', 'beta')), ...counts, tenants: 2 })
  await eventually(async () => expect((await shown()).generation).toBe(2))
  const { file: path, sha256: hash } = await shown()
  expect([path, hash]).toEqual([line['file'], line['sha256']])
})

test('after the admin API made a tenant: the same file, another number, a tenant more', async () => {
  const line = await swap(() => house.admin('POST', 'tenants', { name: 'made' }))
  expect(line).toMatchObject({ generation: 3, sha256: sha256(file('acme', 'beta')), tenants: 3 })
})

test('while a swap waits: a new control process shows what is in force; a tenant that is made brings no older file back', async () => {
  const last = file('acme', 'gamma') + 'server: { subjects_max: 128 }\r\n'
  const holder = new Database(`${house.data}/ledger.db`)
  holder.run('PRAGMA busy_timeout = 5000')
  const before = house.logged('reloaded').length
  const in_force = await shown()
  holder.run('BEGIN IMMEDIATE')
  try {
    // The accountant cannot write the price: this swap waits, and what comes after it too.
    reload(file('acme').replace('free: true', 'price: { input: "1", output: "2" }'))
    await eventually(() => expect(house.logged('prices_postponed').length).toBeGreaterThan(0), 5_000)
    const [control] = house.pids('control')
    process.kill(control!, 'SIGKILL')
    await eventually(async () => {
      expect(house.pids('control')).not.toContain(control!)
      expect(await shown()).toEqual(in_force)
    }, 5_000)
    reload(last)
    await eventually(() => expect(house.logged('settings_ignored')).toHaveLength(1), 5_000)
    expect((await house.admin('POST', 'tenants', { name: 'late' })).status).toBe(201)
    // The control process has told the supervisor by then.
    await Bun.sleep(200)
  } finally {
    holder.run('ROLLBACK')
    holder.close()
  }
  const lines = await eventually(() => {
    const swaps = house.logged('reloaded').slice(before)
    expect(swaps).toHaveLength(3)
    return swaps
  }, 5_000)
  expect(lines.slice(1).map((line) => [line['sha256'], line['tenants']])).toEqual([
    [sha256(last), 4],
    [sha256(last), 4],
  ])
  await eventually(async () => {
    const names = (await shown()).config.tenants.map(({ name }) => name)
    expect(names).toEqual(['acme', 'gamma', 'late', 'made'])
  })
  expect(await house.stop()).toBe(0)
})

test('of an empty file: the demo engine', async () => {
  await using demo = await startHouse({ text: '' })
  expect(demo.logged('configuration_in_force')).toMatchObject([{ generation: 1, sha256: sha256(''), engines: 1 }])
  expect(await demo.stop()).toBe(0)
})
