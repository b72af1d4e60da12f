import { expect, setDefaultTimeout, test } from 'bun:test'
import { giveCounts, reap, takeCounts } from '../../src/table/counts.ts'
import { SUBJECT, WORKER } from '../../src/table/layout.ts'
import { createTable, openTable, subjectOf, type Table, workerI32 } from '../../src/table/table.ts'
import { rollFrom, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const CHILD = `${import.meta.dir}/count-child.ts`
const count = (table: Table, kind: string, name: string) =>
  Atomics.load(table.i32, subjectOf(table, kind, name)! * 2 + SUBJECT.count)
const spawn = (...args: (string | number)[]) =>
  Bun.spawn({ cmd: [process.execPath, CHILD, ...args.map(String)], stdout: 'pipe', stderr: 'inherit' })
const result = async (child: ReturnType<typeof spawn>) =>
  JSON.parse((await new Response(child.stdout).text()).trim().split('\n').at(-1)!) as {
    admitted: number
    seen_max: number
  }

test('four processes that keep what they take admit exactly the limit', async () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, 0)
  const children = [0, 1, 2, 3].map((worker) => spawn(path, worker, 1_000, 2_000, 'hold'))
  const results = await Promise.all(children.map(result))
  expect(results.reduce((sum, one) => sum + one.admitted, 0)).toBe(1_000)
  expect(count(table, 'key', 'k')).toBe(1_000)
  expect(count(table, 'tenant', 't')).toBe(1_000)
})

test('four processes that take and give are never over the limit and end at zero', async () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, 0)
  const results = await Promise.all([0, 1, 2, 3].map((worker) => result(spawn(path, worker, 3, 100_000, 'give'))))
  for (const one of results) expect(one.seen_max).toBeLessThanOrEqual(3)
  expect(count(table, 'key', 'k')).toBe(0)
  expect(count(table, 'tenant', 't')).toBe(0)
})

test('the share of a killed process is given back exactly, at whatever instruction it died', async () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, 0)
  const roll = rollFrom(7)
  const kept = [{ subject: subjectOf(table, 'key', 'k')!, limit: 1_000 }]
  for (let taken = 0; taken < 5; taken++) expect(takeCounts(table, 9, kept)).toBe(-1)
  for (let round = 0; round < 15; round++) {
    const survivor = spawn(path, 1, 1_000_000, 300_000, 'give')
    const victim = spawn(path, 0, 1_000_000, 1_000_000_000, round % 2 === 0 ? 'give' : 'hold')
    const reader = victim.stdout.getReader()
    await reader.read()
    await Bun.sleep(roll(25))
    victim.kill('SIGKILL')
    await victim.exited
    reap(table, 0, [1, 9])
    await result(survivor)
    expect(count(table, 'key', 'k')).toBe(5)
    expect(count(table, 'tenant', 't')).toBe(0)
  }
  giveCounts(table, 9, [...kept, ...kept, ...kept, ...kept, ...kept])
  expect(count(table, 'key', 'k')).toBe(0)
})

test('all or none: a claim that does not fit gives the earlier ones back', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const claims = [
    { subject: subjectOf(table, 'key', 'a')!, limit: 5 },
    { subject: subjectOf(table, 'tenant', 'b')!, limit: 1 },
  ]
  expect(takeCounts(table, 0, claims)).toBe(-1)
  expect(takeCounts(table, 0, claims)).toBe(1)
  expect([count(table, 'key', 'a'), count(table, 'tenant', 'b')]).toEqual([1, 1])
})

test('a worker stuck inside a bracket is waited for, not counted wrongly', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  subjectOf(table, 'key', 'k')
  Atomics.store(table.i32, workerI32(1, WORKER.op_seq), 1)
  expect(() => reap(table, 0, [1])).toThrow('no quiet moment')
})

test('a slot is found again from another view, and a full table says so', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const slots = new Set(Array.from({ length: 64 }, (_, index) => subjectOf(table, 'key', `k${index}`)))
  expect(slots.size).toBe(64)
  expect(slots.has(undefined)).toBe(false)
  expect(subjectOf(table, 'key', 'one too many')).toBeUndefined()
  expect(subjectOf(openTable(`${folder.path}/table`), 'key', 'k7')).toBe(subjectOf(table, 'key', 'k7'))
})
