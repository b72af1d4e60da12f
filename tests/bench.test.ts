import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { resolve } from 'node:path'
import { chart, figure, report, Samples, table } from '../bench/kit/report.ts'
import { BENCHES } from '../bench/list.ts'
import { idleBench } from '../bench/idle.ts'
import { slowEngineBench } from '../bench/slow-engine.ts'
import { slowLedgerBench } from '../bench/slow-ledger.ts'
import { slowOfThreeBench } from '../bench/slow-of-three.ts'
import { slopeOf } from '../bench/soak.ts'

setDefaultTimeout(60_000)

/** Benchmarks are code: they are run here at their smallest, so that they still run when they are needed. */

const TINY = { seconds: 0.05, runs: 1, warm_s: 0 }

/** The names and figures that are promised to whoever scripts against them. */
const PROMISED: Readonly<Record<string, readonly string[]>> = {
  stages: ['all_p50_us', 'admit_p50_us', 'frame_p50_us', 'identify_p50_us', 'limit_p50_us', 'route_p50_us'],
  bytes: ['scan_body_ns', 'event_cut_and_read_ns'],
}

const finite = (figures: Readonly<Record<string, { value: number; min: number; max: number; n: number }>>) =>
  Object.entries(figures).filter(
    ([, { value, min, max, n }]) => !(Number.isFinite(value) && min <= value && value <= max && n > 0),
  )

test.each(Object.entries(PROMISED))('%s runs at its smallest and has its figures', async (name, figures) => {
  const result = await BENCHES[name]!.run(TINY)
  expect(Object.keys(result.figures)).toEqual(expect.arrayContaining([...figures]))
  expect(finite(result.figures)).toEqual([])
})

test('a bench with a house of its own runs at its smallest', async () => {
  const { figures } = await slowEngineBench(TINY, { calls: 20, delay_ms: 100 })
  expect(figures['errors']!.value).toBe(0)
  // It cannot be faster than the engine.
  expect(figures['all_s']!.value).toBeGreaterThanOrEqual(0.1)
  expect(finite(figures)).toEqual([])
})

test('connections that are kept alive, a few', async () => {
  const { figures } = await idleBench(TINY, 20)
  expect([figures['clients']!.value, figures['errors']!.value]).toEqual([20, 0])
  expect(figures['idle_rss_mb']!.value).toBeGreaterThan(0)
  expect(finite(figures)).toEqual([])
})

test('one slow engine of three, at its smallest', async () => {
  const { figures } = await slowOfThreeBench({ ...TINY, seconds: 0.3 })
  expect(figures['failed']!.value).toBe(0)
  // No engine is quicker than the quick ones are told to be.
  expect(figures['least_loaded_first_token_p50_ms']!.value).toBeGreaterThan(40)
  expect(finite(figures)).toEqual([])
})

test('a ledger that is slowed: the calls are answered, and the delay is where it should be', async () => {
  const { figures } = await slowLedgerBench(TINY, [0, 60])
  expect([figures['errors_weir_60']!.value, figures['errors_inline_60']!.value]).toEqual([0, 0])
  // Neither can be faster than the delay: a row in the ledger, a call of the proxy that writes inline.
  expect(figures['posting_lag_ms_60']!.value).toBeGreaterThanOrEqual(60)
  expect(figures['p50_ms_inline_60']!.value).toBeGreaterThanOrEqual(60)
  expect(finite(figures)).toEqual([])
})

test('the command lists every bench that is promised, and answers 2 for one that is not there', () => {
  const main = resolve(import.meta.dir, '../bench/main.ts')
  const list = Bun.spawnSync([process.execPath, main])
  const named = list.stdout
    .toString()
    .trim()
    .split('\n')
    .map((line) => line.split(' ')[0]!)
  const promised = ['floor', 'direct', 'stages', 'fifty', 'thousand', 'twelve-thousand', 'sweep', 'stream']
  expect(named).toEqual(
    expect.arrayContaining([
      ...promised,
      'journal',
      'ledger',
      'merkle',
      'soak',
      'idle',
      'slow-engine',
      'slow-ledger',
      'durability',
      'choice',
      'routing',
      'slow-of-three',
      'outage',
    ]),
  )
  expect([list.exitCode, Bun.spawnSync([process.execPath, main, 'nope']).exitCode]).toEqual([0, 2])
})

describe('a report', () => {
  test('a figure is the median with its spread', () => {
    expect(figure([3, 1, 2], 's')).toEqual({ value: 2, unit: 's', min: 1, max: 3, n: 3 })
    expect(figure([4, 1, 2, 3], 's').value).toBe(2.5)
  })
  test('samples keep the order of their first', () => {
    const samples = new Samples()
    for (const [name, value] of [
      ['b', 1],
      ['a', 2],
      ['b', 3],
    ] as const)
      samples.take(name, 's', value)
    expect(Object.entries(samples.figures()).map(([name, { value, n }]) => [name, value, n])).toEqual([
      ['b', 2, 2],
      ['a', 2, 1],
    ])
  })
  test('the object says what, when, where and with which versions', () => {
    const whole = report('x', { figures: { a: figure([1], 's') }, notes: ['n'] }, { bun: '1' })
    expect(Object.keys(whole)).toEqual(['name', 'date', 'machine', 'versions', 'figures', 'notes'])
  })
  test('table and chart show every figure', () => {
    const figures = { 'a<b': figure([1], 's'), c: figure([2], 's') }
    expect(table(figures).split('\n')).toHaveLength(3)
    const svg = chart('t', figures)
    expect(svg).toContain('a&lt;b')
    expect(svg.match(/<rect/g)).toHaveLength(3)
  })
  test('the slope of a line is its slope', () => {
    expect(
      slopeOf([
        [0, 1],
        [1, 3],
        [2, 5],
      ]),
    ).toBe(2)
    expect(slopeOf([[1, 1]])).toBe(0)
  })
})
