import { expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { lengthenBacklog } from '../../src/cluster/backlog.ts'

setDefaultTimeout(60_000)

/** The backlog of a listener as the kernel tells it, in the column of sockets that wait to be sent. */
const backlogOf = (port: number): number => {
  const { stdout } = Bun.spawnSync(['ss', '-Hltn', `sport = :${port}`])
  return Number(stdout.toString().trim().split(/\s+/)[2])
}

test.skipIf(process.platform !== 'linux' || Bun.which('ss') === null)(
  'a listener’s backlog becomes longer, up to what the kernel allows',
  async () => {
    const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('OK') })
    const most = Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8'))
    expect(lengthenBacklog(server.port!, 2_000)).toBe(true)
    expect(backlogOf(server.port!)).toBe(Math.min(most, 2_000))
    expect(await (await fetch(server.url)).text()).toBe('OK')
    await server.stop(true)
  },
)

test('a port on which nobody listens is told', () => {
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('OK') })
  const { port } = server
  void server.stop(true)
  expect(lengthenBacklog(port!)).toBe(false)
})
