import { SUBJECT } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import type { Target } from './catalogue.ts'
import { claimProbe, coolMs, onProbation } from './health.ts'

/** Why no target could be chosen: the shortest wait in milliseconds until one may be free. */
export type NoTarget = { readonly wait_ms: number; readonly why: 'cooling' | 'full' | 'tried' }

/**
 * Chooses a target by power of two choices (Mitzenmacher 2001): two drawn by weight, the one with fewer calls in flight
 * for its capacity wins. Skips engines that are benched, full or in `tried`. An engine on probation is chosen by the
 * one caller that claims its probe. `random` yields [0, 1).
 */
export const chooseTarget = (
  targets: readonly Target[],
  tried: readonly Target[],
  table: Table,
  now_ms: number,
  random: () => number,
): Target | NoTarget => {
  let wait_ms = Number.POSITIVE_INFINITY
  let full = false
  let weight_sum = 0
  const candidates: Target[] = []
  for (const target of targets) {
    if (tried.includes(target)) continue
    const subject = target.engine.subject
    const cool_ms = coolMs(table, subject, now_ms)
    if (cool_ms > 0) wait_ms = Math.min(wait_ms, cool_ms)
    else if (inFlight(table, target) >= target.engine.config.capacity) full = true
    else if (onProbation(table, subject)) {
      if (claimProbe(table, subject, now_ms)) return target
      wait_ms = Math.min(wait_ms, 1_000)
    } else {
      candidates.push(target)
      weight_sum += target.weight
    }
  }
  if (candidates.length === 0) {
    if (full) return { wait_ms: 1_000, why: 'full' }
    return Number.isFinite(wait_ms) ? { wait_ms, why: 'cooling' } : { wait_ms: 1_000, why: 'tried' }
  }
  if (candidates.length === 1) return candidates[0]!
  const first = drawn(candidates, weight_sum, random())
  const rest = candidates.filter((target) => target !== first)
  const second = drawn(rest, weight_sum - first.weight, random())
  return load(table, second) < load(table, first) ? second : first
}

const inFlight = (table: Table, target: Target): number =>
  Atomics.load(table.i32, target.engine.subject * 2 + SUBJECT.count)

const load = (table: Table, target: Target): number =>
  inFlight(table, target) / (target.engine.config.capacity * target.weight)

const drawn = (targets: readonly Target[], weight_sum: number, at: number): Target => {
  let left = at * weight_sum
  for (const target of targets) {
    left -= target.weight
    if (left < 0) return target
  }
  return targets[targets.length - 1]!
}
