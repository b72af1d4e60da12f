import { closeSync, openSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'

/** It is looked again after so many answers; a burst takes every descriptor in one turn of the loop, before the first. */
const ANSWERS = 8
/** Descriptors count as short for so long after the last time that a quarter of them was not free. */
const LASTS_MS = 1_000

/**
 * Tells, when asked at each answer, whether a process is short of file descriptors, of which it may open `allowed`: then
 * connections should end with their answers, so that clients who wait outside come in.
 */
export const openCrowd = (allowed: number, tick: Clock): (() => boolean) => {
  let unseen = 0
  let until_tick_ms = 0
  return () => {
    if (unseen-- <= 0) {
      unseen = ANSWERS
      if (lowestFree() >= allowed * 0.75) until_tick_ms = tick() + LASTS_MS
    }
    return until_tick_ms > 0 && tick() < until_tick_ms
  }
}

/** The number that the next file gets: all below it are taken. */
const lowestFree = (): number => {
  try {
    const fd = openSync('/dev/null', 'r')
    closeSync(fd)
    return fd
  } catch {
    return Number.POSITIVE_INFINITY
  }
}
