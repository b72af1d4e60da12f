import { Database } from 'bun:sqlite'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync } from 'node:fs'
import { startHouse } from '../kit/house.ts'
import { eventually, rollFrom, tempFolder } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine, startTraffic } from '../crash/traffic.ts'

setDefaultTimeout(60_000)

test('C49: others hold the ledger’s write lock for 4 s and read it all the time; no call fails, no row is missing', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const key = await house.key('acme')
  await house.post('/v1/chat/completions', marked('first', false), key)
  await house.rowsReach(1)

  // In a process of its own, as a backup or a curious operator would be.
  const hold = `
    import { Database } from 'bun:sqlite'
    const db = new Database(process.argv.at(-1))
    db.run('PRAGMA busy_timeout = 20000')
    for (const held_ms of [4000, 700]) {
      db.run('BEGIN IMMEDIATE')
      await Bun.sleep(held_ms)
      db.run('ROLLBACK')
      await Bun.sleep(300)
    }`
  const read = `
    import { Database } from 'bun:sqlite'
    const db = new Database(process.argv.at(-1), { readonly: true })
    for (;;) {
      db.run('BEGIN')
      db.query('SELECT count(*), sum(charge_nanodollars) FROM calls').get()
      await Bun.sleep(3000)
      db.run('COMMIT')
    }`
  const run = (code: string) =>
    Bun.spawn({ cmd: [process.execPath, '-e', code, `${house.data}/ledger.db`], stdout: 'ignore', stderr: 'inherit' })
  const reader = run(read)
  const holder = run(hold)
  const traffic = startTraffic(house, key, 'c49', 8, rollFrom(11))
  // A new house.db writer, too: keys are made while the other file is locked.
  const made = await house.admin('POST', 'keys', { tenant: 'acme', name: 'meanwhile' })
  expect(made.status).toBe(201)
  expect(await holder.exited).toBe(0)
  await traffic.stop()
  reader.kill()

  expect(traffic.seen.filter(({ status, whole }) => status !== 200 || !whole)).toEqual([])
  expect(house.logged('posting_postponed').length).toBeGreaterThan(0)
  await eventually(
    () =>
      expectOneRowEach(
        house.data,
        traffic.seen.map(({ body }) => body),
      ),
    5_000,
  )
  expect(house.rows().length).toBe(traffic.seen.length + 1)
  expect(house.logged('process_died')).toEqual([])
  console.log(`C49: ${traffic.seen.length} calls, ${house.logged('posting_postponed').length} postings repeated`)
  expect(await house.stop()).toBe(0)
})

test('C49: many processes at once open and migrate one empty folder', async () => {
  using folder = tempFolder('weir-migrate')
  mkdirSync(folder.path, { recursive: true })
  const open = `
    import { openReader, openWriter } from '${new URL('../../src/ledger/database.ts', import.meta.url).pathname}'
    const data = process.argv.at(-1)
    for (const name of ['ledger', 'house']) {
      openReader(data, name).sqlite.close()
      openWriter(data, name).sqlite.close()
    }`
  const all = Array.from({ length: 8 }, () =>
    Bun.spawn({ cmd: [process.execPath, '-e', open, folder.path], stdout: 'ignore', stderr: 'inherit' }),
  )
  expect(await Promise.all(all.map(({ exited }) => exited))).toEqual(Array(8).fill(0))
  const db = new Database(`${folder.path}/ledger.db`, { readonly: true })
  expect(db.query('PRAGMA integrity_check').values()).toEqual([['ok']])
  db.close()
})

test('C49: a house starts while another holds its ledger, and stops when it is held again', async () => {
  await using engine = markedEngine()
  using folder = tempFolder('weir-locked')
  const settings = { config: houseConfig(engine.url), data: `${folder.path}/data` }
  const bodies = Array.from({ length: 5 }, (_, n) => marked(`b-${n}`, false))
  {
    await using house = await startHouse(settings)
    const key = await house.key('acme')
    for (const body of bodies) await call(house.url, key, body)
    await house.rowsReach(5)
    const db = new Database(`${house.data}/ledger.db`)
    db.run('PRAGMA busy_timeout = 5000')
    db.run('BEGIN IMMEDIATE')
    bodies.push(marked('late', false))
    expect((await call(house.url, key, bodies.at(-1)!)).status).toBe(200)
    const stopping = house.stop()
    await Bun.sleep(1_500)
    db.run('ROLLBACK')
    db.close()
    // It waited, and what was late is posted.
    expect(await stopping).toBe(0)
    expectOneRowEach(house.data, bodies)
  }
  const db = new Database(`${settings.data}/ledger.db`)
  db.run('BEGIN IMMEDIATE')
  setTimeout(() => db.run('ROLLBACK'), 3_000)
  await using house = await startHouse({
    ...settings,
    config: { ...settings.config, models: [{ ...settings.config.models[0], price: { input: '9', output: '9' } }] },
  })
  expect(house.logged('prices_postponed').length).toBeGreaterThan(0)
  expect(await house.stop()).toBe(0)
  db.close()
})
