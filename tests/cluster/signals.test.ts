import { expect, setDefaultTimeout, test } from 'bun:test'
import path from 'node:path'
import { writeFileSync } from 'node:fs'
import { housePids, startHouse } from '../kit/house.ts'
import { eventually, rollFrom, tempFolder, within } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine, startTraffic } from '../crash/traffic.ts'

setDefaultTimeout(60_000)

const PROJECT = path.resolve(import.meta.dir, '../..')

test.each(['SIGTERM', 'SIGINT'] as const)(
  '`bun start` hands %s on: the house drains and its exit code comes out',
  async (signal) => {
    await using engine = markedEngine()
    using folder = tempFolder('weir-bun-start')
    const data = `${folder.path}/data`
    writeFileSync(`${folder.path}/weir.yaml`, JSON.stringify(houseConfig(engine.url)))
    const flags = [
      '--config',
      `${folder.path}/weir.yaml`,
      '--port',
      '0',
      '--ops-port',
      '0',
      '--data',
      data,
      '--workers',
      '1',
    ]
    const shell = Bun.spawn({
      cmd: [process.execPath, 'start', ...flags],
      cwd: PROJECT,
      env: { ...process.env, WEIR_ADMIN_TOKEN: 'test-admin-token' },
      stdout: 'pipe',
      stderr: 'ignore',
    })
    try {
      const reader = shell.stdout.getReader()
      const { value } = await within(reader.read(), 10_000, 'ready line')
      expect(Buffer.from(value!).toString()).toMatch(/^weir ready port=\d+ ops=\d+ workers=1 pid=\d+\n$/)
      shell.kill(signal)
      expect(await within(shell.exited, 10_000, 'exit')).toBe(0)
      expect(housePids(data, '')).toEqual([])
    } finally {
      shell.kill('SIGKILL')
      for (const pid of housePids(data, '')) process.kill(pid, 'SIGKILL')
    }
  },
)

test('signals in any order and number, while the house starts and serves, end in order and lose nothing', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url, { grace_ms: 3_000 }), workers: 2 })
  const key = await house.key('acme')
  const traffic = startTraffic(house, key, 'signals', 6, rollFrom(5))
  for (let n = 0; n < 15; n++) {
    house.kill('SIGHUP')
    if (n % 5 === 0) house.kill('SIGUSR2')
    await Bun.sleep(40)
  }
  // Stopped in the middle of a replacement.
  await eventually(() => house.pids('worker').length === 3, 5_000)
  house.kill('SIGTERM')
  await traffic.stop()
  expect(await house.exited).toBe(0)
  expect(house.pids('')).toEqual([])
  const answered = traffic.seen.filter(({ status }) => status === 200)
  expect(answered.filter(({ whole }) => !whole)).toEqual([])
  expectOneRowEach(
    house.data,
    answered.map(({ body }) => body),
  )
  expect(house.logged('process_died')).toEqual([])
})

test('a worker that dies again and again is started again and again, later and later; one that lives serves', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const key = await house.key('acme')
  const [victim] = house.pids('worker')
  let next = victim!
  const other = house.pids('worker')[1]!
  for (let n = 0; n < 4; n++) {
    process.kill(next, 'SIGKILL')
    next = await eventually(() => {
      const pid = house.pids('worker').find((each) => each !== other && each !== next)
      if (pid === undefined) throw new Error('not back')
      return pid
    }, 8_000)
  }
  const delays = house.logged('process_died').map((line) => line['restart_in_ms'])
  expect(delays).toEqual([100, 200, 400, 800])
  expect((await call(house.url, key, marked('after', false))).status).toBe(200)
  expect(await house.stop()).toBe(0)
})
