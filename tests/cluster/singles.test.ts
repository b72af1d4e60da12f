import { expect, setDefaultTimeout, test } from 'bun:test'
import { tickMs } from '../../src/base/clock.ts'
import type { Child } from '../../src/cluster/child-process.ts'
import { openSingles } from '../../src/cluster/singles.ts'
import { createTable } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Singles whose processes are real ones of the system, told to drain by a signal. Each start takes the next script. */
const singlesOf = (folder: string, ...scripts: readonly string[]) => {
  const started: Child[] = []
  const spawn = (): Child => {
    const script = scripts[Math.min(started.length, scripts.length - 1)]!
    const child = Bun.spawn(['sh', '-c', script], { stdout: 'ignore', stderr: 'ignore' })
    const made: Child = {
      role: 'auditor',
      pid: child.pid,
      started_tick_ms: tickMs(),
      heard_tick_ms: tickMs,
      send: () => undefined,
      kill: () => child.kill('SIGKILL'),
      alive: () => child.exitCode === null && child.signalCode === null,
      ready: Promise.resolve(0),
      exited: child.exited,
    }
    started.push(made)
    return made
  }
  const table = createTable(`${folder}/table`, 64, Date.now())
  return { started, singles: openSingles({ table, spawn, log: () => undefined, tick: tickMs }) }
}

test.concurrent.each([
  { name: 'ends well', scripts: ['exit 0'], code: 0, starts: 1 },
  { name: 'dies, and its successor finishes', scripts: ['exit 1', 'exit 0'], code: 0, starts: 2 },
  { name: 'dies again and again', scripts: ['exit 1'], code: 1, starts: 3 },
  { name: 'is frozen: its successor finishes', scripts: ['exec sleep 60', 'exit 0'], code: 0, starts: 2 },
  { name: 'never ends: killed once the time is over', scripts: ['exec sleep 60'], code: 137, starts: 2 },
  { name: 'dies, and its successor never ends', scripts: ['exit 1', 'exec sleep 60'], code: 137, starts: 2 },
])('a process that is to stop $name', async ({ scripts, code, starts }) => {
  using folder = tempFolder('weir-singles')
  const { started, singles } = singlesOf(folder.path, ...scripts)
  await singles.keep('auditor', 0)
  singles.stopping()
  expect(await singles.stop('auditor', 6_000, true)).toBe(code)
  expect(started).toHaveLength(starts)
})
