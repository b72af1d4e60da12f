import { heapStats } from 'bun:jsc'
import { expect, test } from 'bun:test'
import { chooseTarget } from '../../src/balance/choose.ts'
import { hashOf } from '../../src/balance/rendezvous.ts'
import { homeOf, remember, SESSIONS_MAX } from '../../src/balance/sessions.ts'
import { SESSIONS_BYTES, SUBJECT, tableBytes } from '../../src/table/layout.ts'
import { openTable, subjectOf, type Table } from '../../src/table/table.ts'
import { forAll, tempFolder } from '../kit/wait.ts'
import { modelOf, NOW, randomFrom, tableIn, targetOf, wish } from './kit.ts'

const engines = (table: Table, count: number) =>
  Array.from({ length: count }, (_, nth) => subjectOf(table, 'engine', `e${nth}`)!)
const sessionsOf = (table: Table, engine: number) => Atomics.load(table.i32, engine * 2 + SUBJECT.sessions)

test('what one process remembers all see, and the last word counts', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const other = openTable(`${folder.path}/table`)
  const [a, b] = engines(table, 2) as [number, number]
  expect(homeOf(other, 5)).toBeUndefined()
  remember(table, 5, a, NOW)
  expect(homeOf(other, 5)).toBe(a)
  expect([sessionsOf(other, a), sessionsOf(other, b)]).toEqual([1, 0])
  remember(other, 5, b, NOW)
  expect(homeOf(table, 5)).toBe(b)
  expect([sessionsOf(table, a), sessionsOf(table, b)]).toEqual([0, 1])
})

test('10,000 conversations over 256 engines fit in 128 KiB; nearly all are kept, and the counts add up', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const all = engines(table, 256)
  const keys = Array.from({ length: 10_000 }, (_, nth) => hashOf(`conversation ${nth}`))
  keys.forEach((key, nth) => remember(table, key, all[nth % 256]!, NOW))
  const kept = keys.filter((key, nth) => homeOf(table, key) === all[nth % 256]).length
  expect(kept / keys.length).toBeGreaterThan(0.9)
  const counted = all.reduce((sum, engine) => sum + sessionsOf(table, engine), 0)
  expect(counted).toBe(kept)
  expect(SESSIONS_BYTES).toBe(131_072)
  // All that the house holds of 256 engines and any number of conversations.
  expect(tableBytes(256) - tableBytes(0) + SESSIONS_BYTES).toBe(262_144)
})

test('a worker that balances 10,000 conversations over 256 engines keeps nothing of them in its own memory', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const model = modelOf(
    Array.from({ length: 256 }, (_, nth) => targetOf(table, `e${nth}`)),
    'prefix_affinity',
  )
  const random = randomFrom(1)
  const round = () => {
    for (let nth = 0; nth < 10_000; nth++)
      chooseTarget(model, wish({ key: hashOf(`conversation ${nth}`) }), table, NOW, random)
    Bun.gc(true)
    return heapStats().heapSize
  }
  const before = round()
  expect(round() - before).toBeLessThan(1024 * 1024)
})

test('the oldest of a set makes room', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const [a] = engines(table, 1) as [number]
  const first = hashOf('first')
  remember(table, first, a, NOW)
  for (let nth = 0; nth < SESSIONS_MAX * 4; nth++) {
    if (nth % 1_000 === 0) remember(table, first, a, NOW + nth * 100)
    remember(table, hashOf(`other ${nth}`), a, NOW + nth * 100)
  }
  expect(homeOf(table, first)).toBe(a)
  expect(sessionsOf(table, a)).toBeLessThanOrEqual(SESSIONS_MAX)
})

test('counts of conversations stay exact whatever is remembered', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const all = engines(table, 5)
  const keys = new Set<number>()
  forAll(20, (roll) => {
    for (let step = 0; step < 200; step++) {
      const key = 1 + roll(300)
      keys.add(key)
      remember(table, key, all[roll(5)]!, NOW + roll(100_000))
    }
    const homes = [...keys].map((key) => homeOf(table, key))
    for (const engine of all) expect(sessionsOf(table, engine)).toBe(homes.filter((home) => home === engine).length)
  })
})
