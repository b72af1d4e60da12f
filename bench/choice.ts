import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { noteLatency } from '../src/balance/averages.ts'
import type { Target } from '../src/balance/catalogue.ts'
import { chooseTarget } from '../src/balance/choose.ts'
import { hashOf } from '../src/balance/rendezvous.ts'
import { STRATEGIES, type StrategyName } from '../src/balance/strategies.ts'
import { SUBJECT } from '../src/table/layout.ts'
import { createTable, subjectOf } from '../src/table/table.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { randomOf } from './simulator/traffic.ts'

/** What one choice among 64 engines costs, for each strategy. */
export const choiceBench = ({ runs }: Pick<Options, 'runs'>): Promise<Result> => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-choice-'))
  const samples = new Samples()
  try {
    takeChoices(samples, runs, folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return Promise.resolve({
    figures: samples.figures(),
    notes: [
      'CPU time of one choice among 64 healthy engines with calls in flight, explanation included; every engine another latency',
    ],
  })
}

/** Samples of all strategies, in turn. */
export const takeChoices = (samples: Samples, runs: number, folder: string): void => {
  for (let run = 0; run < runs; run++)
    for (const strategy of Object.keys(STRATEGIES) as StrategyName[])
      samples.take(`choose_64_${strategy}_us`, 'µs', choiceUs(strategy, folder))
}

const CHOICES = 100_000
const NOW_MS = 1_700_000_000_000

/** Time of one choice among 64 healthy engines, as the hot path makes it, written down for the explanation. */
const choiceUs = (strategy: StrategyName, folder: string): number => {
  const table = createTable(join(folder, 'table'), 1_024, 0)
  const targets = Array.from(
    { length: 64 },
    (_, nth) =>
      ({
        engine: {
          name: `e${nth}`,
          subject: subjectOf(table, 'engine', `e${nth}`)!,
          config: { capacity: 256, scrape_ms: 1_000 },
        },
        model: 'm',
        weight: 1,
        id: hashOf(`e${nth}`),
        cost: { input: nth % 8, output: nth % 8 },
      }) as unknown as Target,
  )
  const random = randomOf(1)
  targets.forEach(({ engine: { subject } }, nth) => {
    noteLatency(table, subject, 40 + (nth % 7), NOW_MS - 5_000)
    table.i32[subject * 2 + SUBJECT.count] = 5 + (nth % 3)
    table.f64[subject + SUBJECT.waiting] = 0
    table.f64[subject + SUBJECT.scraped_at_ms] = NOW_MS - 100
  })
  const model = { targets, config: { strategy } }
  const keys = Array.from({ length: 1_024 }, (_, nth) => hashOf(`key ${nth}`))
  const once = (nth: number) =>
    chooseTarget(
      model,
      { ask: { key: keys[nth & 1_023]!, prompt_tokens: 100, answer_tokens: 256, margin: 1.25 }, tried: [], picks: [] },
      table,
      NOW_MS,
      random,
    )
  for (let nth = 0; nth < CHOICES; nth++) once(nth)
  // CPU time: another process on the machine must not count.
  const before = process.cpuUsage()
  for (let nth = 0; nth < CHOICES; nth++) once(nth)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / CHOICES
}
