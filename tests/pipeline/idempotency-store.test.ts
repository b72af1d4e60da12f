import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, readdirSync, truncateSync, utimesSync } from 'node:fs'
import { findOrClaim, Keeping, openShelf, pathsOf, type Shelf } from '../../src/pipeline/idempotency-store.ts'
import { sweepAnswers, sweepClaims } from '../../src/pipeline/idempotency-sweep.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const folder = tempFolder('weir-shelf')
afterAll(() => folder[Symbol.dispose]())
let shelf: Shelf
beforeAll(() => void (shelf = openShelf(`${folder.path}/main`, 'w0-1')))

let names = 0
const newName = () => Bun.SHA256.hash(`name ${names++}`, 'hex')
const PRINT = 'a'.repeat(64)
const OTHER = 'b'.repeat(64)
const bytes = (text: string) => Buffer.from(text)
const keep = (on: Shelf, name: string, bytes_max = 1_000) =>
  new Keeping(on, name, { fingerprint: PRINT, call_id: 'call_1' }, bytes_max)
const left = (on: Shelf) => [...readdirSync(`${on.folder}/claims`), ...readdirSync(`${on.folder}/parts`)]

test('a claim is one’s own until it is complete; then its answer is there, byte for byte', async () => {
  const name = newName()
  expect(await findOrClaim(shelf, name, PRINT, 'call_1')).toBe('mine')
  expect(await findOrClaim(shelf, name, PRINT, 'call_2')).toBe('in_progress')
  expect(await findOrClaim(shelf, name, OTHER, 'call_2')).toBe('other_request')
  const keeping = keep(shelf, name)
  keeping.add(bytes('ab'))
  keeping.add(new Uint8Array([0, 255]))
  expect(await findOrClaim(shelf, name, PRINT, 'call_2')).toBe('in_progress')
  await keeping.complete(200, { 'content-type': 'x/y' })
  expect(keeping.trouble).toBeUndefined()
  expect(await findOrClaim(shelf, name, PRINT, 'call_2')).toEqual({
    fingerprint: PRINT,
    call_id: 'call_1',
    status: 200,
    headers: { 'content-type': 'x/y' },
    body: Buffer.from([97, 98, 0, 255]),
  })
  expect(await findOrClaim(shelf, name, OTHER, 'call_2')).toBe('other_request')
  expect(left(shelf)).toEqual([])
})

test('a release leaves nothing, whatever was written; what comes after an end changes nothing', async () => {
  const name = newName()
  expect(await findOrClaim(shelf, name, PRINT, 'call_1')).toBe('mine')
  const keeping = keep(shelf, name, 1_000_000)
  keeping.add(new Uint8Array(100_000))
  expect(left(shelf).length).toBe(2)
  keeping.release()
  await keeping.complete(200, {})
  keeping.release()
  expect(left(shelf)).toEqual([])
  expect(await findOrClaim(shelf, name, OTHER, 'call_2')).toBe('mine')
  keep(shelf, name).release()
})

test.each([
  [1_000, 'kept'],
  [1_001, 'not_kept'],
  [500_000, 'not_kept'],
])('an answer of %i bytes where 1000 are allowed is %s', async (size, want) => {
  const name = newName()
  await findOrClaim(shelf, name, PRINT, 'call_1')
  const keeping = keep(shelf, name)
  for (let at = 0; at < size; at += 100_000) keeping.add(new Uint8Array(Math.min(100_000, size - at)))
  await keeping.complete(200, {})
  const found = await findOrClaim(shelf, name, PRINT, 'call_2')
  expect(typeof found === 'string' ? found : 'kept').toBe(want)
  expect(await findOrClaim(shelf, name, OTHER, 'call_2')).toBe('other_request')
  expect(left(shelf)).toEqual([])
})

test('an answer that cannot be written is told, and its repeat is refused', async () => {
  const name = newName()
  await findOrClaim(shelf, name, PRINT, 'call_1')
  const keeping = keep(shelf, name)
  mkdirSync(pathsOf(shelf, name).part)
  keeping.add(bytes('x'))
  await keeping.complete(200, {})
  expect(keeping.trouble).toMatchObject({ code: 'EISDIR' })
  expect(await findOrClaim(shelf, name, PRINT, 'call_2')).toBe('not_kept')
})

test('a file that was torn counts as none, at every length', async () => {
  const name = newName()
  for (const size of [0, 3, 8, 40]) {
    expect(await findOrClaim(shelf, name, PRINT, 'call_1')).toBe('mine')
    const keeping = keep(shelf, name)
    keeping.add(bytes('0123456789'))
    await keeping.complete(200, {})
    expect(await findOrClaim(shelf, name, PRINT, 'call_2')).toMatchObject({ status: 200 })
    truncateSync(pathsOf(shelf, name).answer, size)
  }
})

test('claims and parts of the dead are swept, those of the living stay', async () => {
  const on = openShelf(`${folder.path}/dead`, 'w0-1')
  const dead = openShelf(`${folder.path}/dead`, 'w1-7')
  const [mine, theirs] = [newName(), newName()]
  await findOrClaim(on, mine, PRINT, 'call_1')
  await findOrClaim(dead, theirs, PRINT, 'call_2')
  keep(on, mine, 1e6).add(new Uint8Array(100_000))
  keep(dead, theirs, 1e6).add(new Uint8Array(100_000))
  const is_live = (owner: string) => owner === 'w0-1'
  expect(sweepClaims({ folder: on.folder, is_live })).toBe(2)
  expect(left(on)).toEqual([mine, `${mine}.w0-1`])
  expect(await findOrClaim(on, theirs, OTHER, 'call_3')).toBe('mine')
})

test('answers go when they are old, and the oldest when they are too many or too large', async () => {
  const on = openShelf(`${folder.path}/bounds`, 'w0-1')
  const kept: string[] = []
  for (let age_s = 0; age_s < 10; age_s++) {
    const name = newName()
    await findOrClaim(on, name, PRINT, 'call_1')
    const keeping = keep(on, name, age_s === 5 ? 10 : 10_000)
    keeping.add(new Uint8Array(5_000))
    await keeping.complete(200, {})
    // A claim that stands for an answer that was not kept has its own times, which cannot be set.
    if (age_s !== 5) utimesSync(pathsOf(on, name).answer, 1_000 - age_s, 1_000 - age_s)
    kept.push(name)
  }
  const there = () => kept.filter((name) => readdirSync(`${on.folder}/answers/${name.slice(0, 2)}`).includes(name))
  const sweep = (keep_ms: number, entries_max: number, bytes_max: number) =>
    sweepAnswers({
      folder: on.folder,
      is_live: () => true,
      bounds: () => ({ keep_ms, entries_max, bytes_max }),
      now: () => 1_000_000,
    })
  expect(await sweep(8_500, 100, 1e9)).toEqual({
    entries: 9,
    bytes: 8 * 8_192 + 4_096,
    expired: 1,
    over: 0,
    orphans: 0,
  })
  expect(await sweep(8_500, 7, 1e9)).toMatchObject({ entries: 7, over: 2 })
  expect(there()).toEqual(kept.slice(0, 7))
  expect(await sweep(8_500, 100, 3 * 8_192 + 4_096)).toMatchObject({ entries: 4, over: 3 })
  expect(there()).toEqual([kept[0]!, kept[1]!, kept[2]!, kept[5]!])
})
