import { SESSIONS_AT, SESSIONS_BYTES, SUBJECT, SUBJECT_BYTES, SUBJECTS_AT } from '../table/layout.ts'
import { type Subject, subjectAt, type Table } from '../table/table.ts'

/**
 * Which engine had a conversation last, shared by all workers: 16,384 places of 8 bytes in sets of four, the oldest of a
 * set makes room. A place is two Int32: the key, and the engine's number with the time of last use. Writers that meet
 * in one place may leave a key beside another's engine; that costs a cache miss and nothing else. Each engine's count
 * of conversations stays exact, because a place's value is exchanged and the old one's engine discounted.
 */

export const SESSIONS_MAX = SESSIONS_BYTES / 8
const WAYS = 4
const SETS = SESSIONS_MAX / WAYS
const FIRST = SESSIONS_AT / 4
/** Times are in units of 16 s, modulo 2^11: nine hours. */
const TIME_MS = 16_000
const TIME_MASK = 0x7ff

/** The engine that a key was sent to last; undefined if it is not known. */
export const homeOf = (table: Table, key: number): Subject | undefined => {
  const place = placeOf(table, key)
  if (place < 0) return undefined
  const value = Atomics.load(table.i32, place + 1)
  return value === 0 ? undefined : subjectAt(numberIn(value))
}

/** Writes down which engine has a key now. */
export const remember = (table: Table, key: number, engine: Subject, now_ms: number): void => {
  const number = (engine * 8 - SUBJECTS_AT) / SUBJECT_BYTES
  const time = Math.floor(now_ms / TIME_MS) & TIME_MASK
  let place = placeOf(table, key)
  if (place < 0) {
    place = roomFor(table, key, time)
    Atomics.store(table.i32, place, key | 0)
  }
  const value = ((number + 1) << 11) | time
  const before = Atomics.load(table.i32, place + 1)
  if (before === value) return
  const was = Atomics.exchange(table.i32, place + 1, value)
  if (was !== 0 && numberIn(was) === number) return
  if (was !== 0) Atomics.sub(table.i32, subjectAt(numberIn(was)) * 2 + SUBJECT.sessions, 1)
  Atomics.add(table.i32, engine * 2 + SUBJECT.sessions, 1)
}

const numberIn = (value: number): number => (value >>> 11) - 1

const setOf = (key: number): number => FIRST + ((Math.imul(key, 0x9e3779b1) >>> 0) % SETS) * WAYS * 2

const placeOf = (table: Table, key: number): number => {
  const set = setOf(key)
  for (let way = 0; way < WAYS; way++) if (Atomics.load(table.i32, set + way * 2) === (key | 0)) return set + way * 2
  return -1
}

/** A free place of the key's set, or the one that was not used for the longest time. */
const roomFor = (table: Table, key: number, time: number): number => {
  const set = setOf(key)
  let oldest = set
  let oldest_age = -1
  for (let way = 0; way < WAYS; way++) {
    const value = Atomics.load(table.i32, set + way * 2 + 1)
    if (value === 0) return set + way * 2
    const age = (time - value) & TIME_MASK
    if (age <= oldest_age) continue
    oldest = set + way * 2
    oldest_age = age
  }
  return oldest
}
