import type { Clock } from '../base/clock.ts'
import type { Config, EngineConfig } from '../config/schema.ts'
import { engineLoad } from '../engines/metrics-text.ts'
import { type Fetch, probe, type ProbeResult, scrape } from '../engines/probe.ts'
import type { Log } from '../observe/log.ts'
import { SUBJECT } from '../table/layout.ts'
import { type Subject, subjectOf, type Table } from '../table/table.ts'
import { aliveSince, markProbed } from './health.ts'
import { hashOf } from './rendezvous.ts'

/** Longest wait for the answer to a probe or a scrape. */
const TIMEOUT_MS_MAX = 2_000
const TIMEOUT_MS_MIN = 250
/** A probe that an engine leaves unanswered counts when the next one is unanswered too. */
const SILENT_PROBES = 2
/** How long a bad probe keeps an engine out if no other follows, in intervals. */
const HOLD_INTERVALS = 3
/** How often an engine without a page of figures is asked for it. */
const DENIED_MS = 300_000
/** Within this time after the start every engine has been asked once. */
const START_MS = 200

export type Signals = {
  /** Goes on with the engines of another configuration; what is known of those that stay is kept. */
  reload(config: Config): void
  stop(): void
}

/**
 * Asks all engines how they do and writes it into the shared table: their queue and cache every `scrape_ms`, and whether
 * they are there every `probe_ms`. Never calls a model. Only one process of a house does this.
 */
export const startSignals = ({ config, ...tools }: Tools & { readonly config: Config }): Signals => {
  let watched: Watcher[] = []
  const begin = ({ engines }: Config): void => {
    const before = watched
    watched = engines.map((engine) => before.find((one) => sameEngine(one.engine, engine)) ?? watch(engine, tools))
    for (const one of before) if (!watched.includes(one)) one.stop()
  }
  begin(config)
  return {
    reload: begin,
    stop: () => {
      for (const one of watched) one.stop()
      watched = []
    },
  }
}

type Tools = {
  readonly table: Table
  readonly fetch: Fetch
  readonly now: Clock
  readonly log: Log
}

type Watcher = { readonly engine: EngineConfig; stop(): void }

const sameEngine = (one: EngineConfig, other: EngineConfig): boolean => Bun.deepEquals(one, other, true)

const watch = (engine: EngineConfig, tools: Tools): Watcher => {
  const subject = subjectOf(tools.table, 'engine', engine.name)
  if (subject === undefined) return { engine, stop: () => undefined }
  // Not all engines in the same instant.
  const start_ms = hashOf(engine.name) % START_MS
  const stops = [
    repeat(engine.probe_ms, start_ms, prober(engine, subject, tools)),
    repeat(engine.scrape_ms, start_ms, scraper(engine, subject, tools)),
  ]
  return {
    engine,
    stop: () => {
      for (const stop of stops) stop()
    },
  }
}

/**
 * Runs `once` every `interval_ms`, counted from the end of the one before, until it is stopped. `once` may answer how long
 * to wait instead. An interval of 0 is never.
 */
const repeat = (interval_ms: number, start_ms: number, once: () => Promise<number | undefined>): (() => void) => {
  let stopped = interval_ms === 0
  let timer: Timer | undefined
  const turn = async (): Promise<void> => {
    const pause_ms = (await once()) ?? interval_ms
    if (!stopped) timer = setTimeout(turn, pause_ms)
  }
  if (!stopped) timer = setTimeout(turn, start_ms)
  return () => {
    stopped = true
    clearTimeout(timer)
  }
}

const timeoutOf = (interval_ms: number): number => Math.min(Math.max(interval_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)

const prober = (engine: EngineConfig, subject: Subject, { table, fetch, now, log }: Tools) => {
  const timeout_ms = timeoutOf(engine.probe_ms)
  const hold_ms = HOLD_INTERVALS * (engine.probe_ms + timeout_ms)
  let path = 0
  let silent = 0
  let last: ProbeResult['is'] = 'good'
  return async (): Promise<undefined> => {
    const asked_ms = now()
    const probed = await probe(engine, path, timeout_ms, fetch)
    path = probed.path
    const { result } = probed
    // An engine that answered calls while it let the probe wait is not gone but busy.
    if (result.is === 'silent' && aliveSince(table, subject, asked_ms)) return undefined
    silent = result.is === 'good' || result.is === 'refused' ? 0 : silent + 1
    // One that is busy may miss a probe; one that refuses the connection is not there.
    if (silent === 0 || silent >= SILENT_PROBES) markProbed(table, subject, result.is === 'good', now(), hold_ms)
    if (result.is !== last)
      log(result.is === 'good' ? 'info' : 'warn', 'engine_probed', { engine: engine.name, found: { ...result } })
    last = result.is
  }
}

const scraper = (engine: EngineConfig, subject: Subject, { table, fetch, now }: Tools) => {
  const timeout_ms = timeoutOf(engine.scrape_ms)
  return async (): Promise<number | undefined> => {
    const page = await scrape(engine, timeout_ms, fetch)
    if (page === 'denied') return DENIED_MS
    if (page === undefined) return undefined
    const { waiting, cache_usage } = engineLoad(page)
    // Not a number says unknown: what an engine no longer tells is not zero.
    table.f64[subject + SUBJECT.waiting] = waiting ?? Number.NaN
    table.f64[subject + SUBJECT.cache_usage] = cache_usage ?? Number.NaN
    table.f64[subject + SUBJECT.scraped_at_ms] = now()
    return undefined
  }
}
