import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { openJournalTail } from '../../src/journal/tail.ts'
import { openJournal } from '../../src/journal/writer.ts'
import { FakeDisk } from '../simulation/fake-disk.ts'
import { forAllAsync, type Roll, rollFrom } from '../kit/wait.ts'

/**
 * The power fails: of what was not synced the disk has any sectors or none. The real writer on a disk in memory whose
 * syncs take their time, fail now and then, and are answered in any order.
 */

const turn = () => new Promise((done) => setImmediate(done))
const NEVER_MS = 2 ** 31 - 1

// Some are long, so that segments end.
const record = (number: number, size: number): JournalRecord => ({
  ...{ kind: 'attempt', call_id: String(number), at_ms: number, engine: 'e'.repeat(size), engine_model: 'm' },
  because: '',
  serves: '',
})

const readAll = (disk: FakeDisk): number[] => {
  const tail = openJournalTail({ folder: '/journal', discover_ms: 0, files: disk.process().files })
  const found: number[] = []
  for (;;) {
    const { entries, more } = tail.poll({ records_max: 1_000, bytes_max: 1 << 20 })
    for (const { record } of entries) if (record?.kind === 'attempt') found.push(Number(record.call_id))
    if (!more && entries.length === 0) return found
  }
}

const open = (disk: FakeDisk, durability: 'standard' | 'strict', sync_ms: number) => {
  const life = disk.process()
  const opened = openJournal({
    ...{ folder: '/journal', worker_index: 0, incarnation: 1, durability, sync_ms, retry_ms: NEVER_MS },
    ...{ segment_bytes: 64 * 1024, files: life.files },
  })
  return { life, opened }
}

const ROUNDS = Number(process.env['POWER_ROUNDS'] ?? 300)
let acknowledged = 0
let lost = 0

test(`strict: ${ROUNDS} failures of the power, no acknowledged call lost, and nothing invented`, async () => {
  await forAllAsync(ROUNDS, async (roll) => {
    const disk = new FakeDisk()
    const { life, opened } = open(disk, 'strict', NEVER_MS)
    const journal = await opened
    if (journal instanceof Failure) throw journal
    await turn()
    const acked = new Set<number>()
    let appended = 0
    for (let step = roll(120); step > 0; step--) {
      for (let burst = roll(6); burst > 0; burst--) {
        const number = appended
        const position = journal.append(record(number, roll(8) === 0 ? 4_000 : roll(100)))
        // Faster than the disk makes segments: not taken.
        if (position instanceof Failure) break
        appended++
        void journal.synced(position)!.then((failed) => {
          if (failed === undefined) acked.add(number)
        })
      }
      await turn()
      if (roll(2) === 0 && disk.syncs.length > 0) disk.answer(roll(disk.syncs.length), roll(6) > 0)
      await turn()
    }
    const known = new Set(acked)
    life.die()
    disk.loosePower(roll)
    const left = readAll(disk)
    // In order, none twice and none that never was. (Of a segment that was not acknowledged there may be less than of the next.)
    expect(left).toEqual([...new Set(left)].sort((one, other) => one - other))
    expect(left.filter((number) => number >= appended)).toEqual([])
    expect(known.difference(new Set(left))).toEqual(new Set())
    acknowledged += known.size
    lost += appended - left.length
    await journal.close()
  })
  // A disk that never loses anything proves nothing.
  expect(acknowledged).toBeGreaterThan(ROUNDS)
  expect(lost).toBeGreaterThan(ROUNDS)
  console.log(`${ROUNDS} rounds: ${acknowledged} acknowledged, none lost; ${lost} others lost`)
})

test('standard: a sync begins by itself, and nothing from before the last one is lost', async () => {
  const roll = rollFrom(7)
  for (let round = 0; round < 20; round++) {
    const disk = new FakeDisk()
    const { life, opened } = open(disk, 'standard', 2)
    const journal = await opened
    if (journal instanceof Failure) throw journal
    let appended = 0
    let safe = 0
    for (let step = 0; step < 6; step++) {
      for (let burst = 1 + roll(20); burst > 0; burst--) journal.append(record(appended++, 10))
      // Nobody waits for a position; the timer alone brings it to the disk.
      while (disk.syncs.length === 0) await Bun.sleep(1)
      safe = appended
      for (let more = roll(5); more > 0; more--) journal.append(record(appended++, 10))
      disk.answer(0, true)
      await turn()
    }
    life.die()
    disk.loosePower(roll)
    const left = readAll(disk)
    expect(left.length).toBeGreaterThanOrEqual(safe)
    expect(left).toEqual(left.map((_, at) => at))
    await journal.close()
  }
})

/** A disk whose syncs take up to so long, on a real clock, and the longest that one took. */
const slowDisk = (disk: FakeDisk, roll: Roll, sync_ms_max: number) => {
  const asked = new Map<object, { readonly at_ms: number; readonly due_ms: number }>()
  const slow = { longest_ms: 0, lag_ms: 0, stop: () => clearInterval(timer) }
  let last_ms = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    slow.lag_ms = Math.max(slow.lag_ms, now - last_ms)
    last_ms = now
    for (const sync of [...disk.syncs]) {
      const since = asked.get(sync) ?? { at_ms: now, due_ms: now + roll(sync_ms_max) }
      asked.set(sync, since)
      if (since.due_ms > now) continue
      slow.longest_ms = Math.max(slow.longest_ms, now - since.at_ms)
      disk.answer(disk.syncs.indexOf(sync), true)
    }
  }, 1)
  return slow
}

/** Calls that were acknowledged before the window and are lost, in rounds with a failure of the power each. */
const lostBefore = async (rounds: number, sync_ms: number, window_ms: number) => {
  const roll = rollFrom(11)
  let [early, late, kept] = [0, 0, 0]
  for (let round = 0; round < rounds; round++) {
    const disk = new FakeDisk()
    const { life, opened } = open(disk, 'standard', sync_ms)
    const journal = await opened
    if (journal instanceof Failure) throw journal
    const slow = slowDisk(disk, roll, 12)
    const acked_at_ms: number[] = []
    const end_ms = performance.now() + 60 + roll(60)
    while (performance.now() < end_ms) {
      for (let burst = roll(4); burst > 0; burst--)
        if (!(journal.append(record(acked_at_ms.length, 10)) instanceof Failure)) acked_at_ms.push(performance.now())
      await Bun.sleep(roll(3))
    }
    const cut_ms = performance.now()
    life.die()
    slow.stop()
    disk.loosePower(roll)
    // The disk and a busy machine take their time, as measured: the sync that runs, one more, and two turns of the loop.
    const allowed_ms = window_ms + 2 * slow.longest_ms + 3 * slow.lag_ms
    const left = new Set(readAll(disk))
    for (const [number, at_ms] of acked_at_ms.entries())
      if (left.has(number)) kept++
      else if (cut_ms - at_ms > allowed_ms) early++
      else late++
    await journal.close()
  }
  return { early, late, kept }
}

test('standard: a failure of the power takes nothing that was acknowledged before the window', async () => {
  const { early, late, kept } = await lostBefore(25, 20, 20)
  expect(early).toBe(0)
  // A disk that never loses anything proves nothing.
  expect(late).toBeGreaterThan(25)
  expect(kept).toBeGreaterThan(25)
})

test('standard: a journal that takes longer than its window is caught', async () => {
  expect((await lostBefore(5, 10_000, 20)).early).toBeGreaterThan(0)
})

test('a disk that fails is told to who waits, no new call begins, and with the next sync all is well', async () => {
  const disk = new FakeDisk()
  const { life, opened } = open(disk, 'strict', NEVER_MS)
  const journal = await opened
  if (journal instanceof Failure) throw journal
  await turn()
  const first = journal.synced(journal.append(record(0, 10)) as number)
  await turn()
  disk.answer(0, false)
  expect(((await first) as Failure).code).toBe('journal_full')
  expect(journal.has_room()).toBe(false)
  // Running calls are still written down.
  const second = journal.synced(journal.append(record(1, 10)) as number)
  await turn()
  disk.answer(0, true)
  expect(await second).toBeUndefined()
  expect(journal.has_room()).toBe(true)
  life.die()
  disk.loosePower(rollFrom(1))
  expect(readAll(disk)).toEqual([0, 1])
  await journal.close()
})
