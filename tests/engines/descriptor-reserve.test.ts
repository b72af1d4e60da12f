import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { DescriptorReserve } from '../../src/engines/descriptor-reserve.ts'

setDefaultTimeout(60_000)

const held = () => readdirSync('/proc/self/fd').length

test('holds descriptors, lends them one by one, and takes them back in the next turn', async () => {
  const before = held()
  const reserve = new DescriptorReserve(5)
  expect([reserve.held, held() - before]).toEqual([5, 5])
  reserve.lend()
  reserve.lend()
  expect([reserve.held, held() - before]).toEqual([3, 3])
  reserve.giveBack()
  expect(reserve.held).toBe(3)
  await new Promise(setImmediate)
  expect(reserve.held).toBe(5)
  for (let turn = 0; turn < 7; turn++) reserve.lend()
  expect([reserve.held, held() - before]).toEqual([0, 0])
})

/** Takes every descriptor there is, as clients do, and then dials an engine. */
const CHILD = `
  const { openSync, writeSync } = require('node:fs')
  const { ConnectionPool } = await import('${resolve(import.meta.dir, '../../src/engines/connection-pool.ts')}')
  const { DescriptorReserve } = await import('${resolve(import.meta.dir, '../../src/engines/descriptor-reserve.ts')}')
  const { openSocketTransport } = await import('${resolve(import.meta.dir, '../../src/engines/socket-transport.ts')}')
  const [url, size] = process.argv.slice(-2)
  const pool = new ConnectionPool({ sockets_max: 8, reserve: new DescriptorReserve(Number(size)) })
  const transport = openSocketTransport({ idle_ms: 1000, pool })
  // What the runtime opens for its own use at the first dial is there before.
  await transport.send({ method: 'GET', url: 'http://127.0.0.1:1/', headers: [], body: [] }, { connect_ms: 500, first_byte_ms: 500 }).head
  await new Promise((turn) => setTimeout(turn, 50))
  try { for (;;) openSync('/dev/null', 'r') } catch {}
  const head = await transport.send({ method: 'GET', url, headers: [], body: [] }, { connect_ms: 2000, first_byte_ms: 2000 }).head
  writeSync(1, String(head.status ?? head.kind))
  process.exit(0)
`

test.skipIf(process.platform !== 'linux').each([
  [4, '200'],
  [0, 'connect'],
])('with %d descriptors in reserve and none left an engine’s answer is %s', async (size, expected) => {
  const engine = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('OK') })
  const child = Bun.spawn(
    ['sh', '-c', 'ulimit -n 256; exec "$@"', 'sh', process.execPath, '-e', CHILD, engine.url.href, String(size)],
    { stdout: 'pipe', stderr: 'inherit' },
  )
  expect(await new Response(child.stdout).text()).toBe(expected)
  await engine.stop(true)
})
