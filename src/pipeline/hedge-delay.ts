import { Histogram } from '../balance/histogram.ts'
import type { ModelConfig } from '../config/schema.ts'
import type { Routed } from './call.ts'
import type { House } from './house.ts'

/** Answers that must have been measured before a percentile of them means anything. */
const SAMPLES_LEAST = 50

/** Which times are alike: of streams until the first event, of whole answers until their end. */
export type HedgeKind = 'stream' | 'whole'

/**
 * How long the first engine has before a second one is asked: the set percentile of this worker's own answers of the
 * model, within its bounds, or the set time while too few are known. Undefined if nobody else is to be asked.
 */
export const hedgeDelayMs = (call: Routed, house: House, kind: HedgeKind): number | undefined => {
  const { hedge } = call.model!.config
  return hedge && delayMs(hedge, kind, timesOf(house).get(keyOf(call, kind)))
}

/** The delay by the settings and the times known so far. */
export const delayMs = (
  hedge: NonNullable<ModelConfig['hedge']>,
  kind: HedgeKind,
  times: Histogram | undefined,
): number | undefined => {
  if (hedge.percentile === undefined || times === undefined || times.size < SAMPLES_LEAST)
    return kind === 'stream' ? hedge.after_ms : hedge.whole_after_ms
  return Math.min(Math.max(times.percentile(hedge.percentile), hedge.min_ms), hedge.max_ms)
}

/**
 * Takes note of how long a call waited for its answer, whichever engine gave it. Of a call whose hedge won that is less
 * than its first engine would have taken, but more than the delay: the share beyond the delay stays true.
 */
export const noteWait = (call: Routed, house: House, kind: HedgeKind, waited_ms: number): void => {
  if (call.model!.config.hedge?.percentile === undefined) return
  const times = timesOf(house)
  const key = keyOf(call, kind)
  let histogram = times.get(key)
  if (histogram === undefined) times.set(key, (histogram = new Histogram()))
  histogram.take(waited_ms)
}

const keyOf = (call: Routed, kind: HedgeKind): number => call.model!.subject * 2 + (kind === 'whole' ? 1 : 0)

/** Of each worker; by model, of which the shared table holds a bounded number. */
const houses = new WeakMap<House, Map<number, Histogram>>()
const timesOf = (house: House): Map<number, Histogram> => {
  let times = houses.get(house)
  if (times === undefined) houses.set(house, (times = new Map()))
  return times
}
