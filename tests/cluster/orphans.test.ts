import { expect, setDefaultTimeout, test } from 'bun:test'
import { houseFiles, makeFolders } from '../../src/cluster/house-files.ts'
import { awaitOrphans } from '../../src/cluster/orphans.ts'
import { HEADER } from '../../src/table/layout.ts'
import { createTable } from '../../src/table/table.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine } from '../crash/traffic.ts'

setDefaultTimeout(60_000)

test('kill -9 of the supervisor: its children end by themselves within seconds, and a restart at once works', async () => {
  await using engine = markedEngine()
  using folder = tempFolder('weir-orphans')
  const settings = { config: houseConfig(engine.url), workers: 2, data: `${folder.path}/data` }
  let house: TestHouse = await startHouse(settings)
  const ports = { port: house.port, ops: house.ops }
  const key = await house.key('acme')
  const bodies: string[] = []
  const times: string[] = []
  for (let round = 0; round < 3; round++) {
    const streams = Array.from({ length: 6 }, (_, n) => {
      const body = marked(`r${round}-${n}`, true, 100, 25)
      bodies.push(body)
      return call(house.url, key, body)
    })
    await eventually(() => engine.calls.now === 6)
    const old = house
    const children = old.pids('').filter((pid) => pid !== old.pid)
    expect(children.length).toBe(5)
    old.kill('SIGKILL')
    await old.exited
    const killed_at = performance.now()
    if (round === 1) {
      // Nobody comes: they go all the same.
      await eventually(() => old.pids('').length === 0, 5_000)
      times.push(`children gone after ${Math.round(performance.now() - killed_at)} ms`)
    }
    house = await startHouse({ ...settings, ...ports })
    times.push(`new house after ${Math.round(performance.now() - killed_at)} ms`)
    const now = house.pids('')
    expect(children.filter((pid) => now.includes(pid))).toEqual([])
    expect((await Promise.all(streams)).filter(({ whole }) => whole)).toEqual([])
    const after = marked(`r${round}-after`, false)
    bodies.push(after)
    expect((await call(house.url, key, after)).status).toBe(200)
    await eventually(() => expectOneRowEach(house.data, bodies), 5_000)
  }
  console.log(times.join(', '))
  expect(await house.stop()).toBe(0)
})

test.each([
  ['the house that starts, as in a container: it is left alone', ['start', '--data'], false],
  ['a child of the house that does not go: it is killed', ['control'], true],
] as const)('an old pid now belongs to %s', async (_says, words, killed) => {
  using folder = tempFolder('weir-pid')
  const files = houseFiles(folder.path)
  makeFolders(files)
  const stranger = Bun.spawn({
    cmd: [process.execPath, '-e', 'setInterval(() => undefined, 1000)', ...words, files.data],
    stdout: 'ignore',
    stderr: 'ignore',
  })
  try {
    createTable(files.table, 64, 0).i32[HEADER.control_pid] = stranger.pid
    const kills: number[] = []
    await awaitOrphans(files, (pid) => {
      kills.push(pid)
      process.kill(pid, 'SIGKILL')
    })
    expect(kills).toEqual(killed ? [stranger.pid] : [])
    expect(stranger.killed || stranger.signalCode !== null || stranger.exitCode !== null).toBe(killed)
  } finally {
    stranger.kill('SIGKILL')
    await stranger.exited
  }
})

test('a frozen orphan does not keep the next house from starting: it is killed', async () => {
  await using engine = markedEngine()
  await using old = await startHouse({ config: houseConfig(engine.url), workers: 1 })
  const [worker] = old.pids('worker')
  process.kill(worker!, 'SIGSTOP')
  old.kill('SIGKILL')
  await old.exited
  await using house = await startHouse({ config: houseConfig(engine.url), data: old.data, port: old.port })
  expect(house.pids('worker')).not.toContain(worker!)
  const key = await house.key('acme')
  expect((await call(house.url, key, marked('x', false))).status).toBe(200)
  expect(await house.stop()).toBe(0)
})
