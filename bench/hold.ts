import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { claimOn, openBudget } from '../src/quota/budgets.ts'
import { takeRate } from '../src/quota/gcra.ts'
import { holdTokens, settleTokens } from '../src/quota/rates.ts'
import { BUDGETS_HELD, holdBudgets, settleBudgets } from '../src/table/budget-slot.ts'
import { createTable, openTable, subjectOf, type Table } from '../src/table/table.ts'

/** One measured figure: the median of its runs, with their range. */
export type Figure = { value: number; unit: string; min: number; max: number; n: number }

const LIMIT = 1n << 60n
/** A clock of the bench's own: a millisecond a call. */
let now_ms = 1_790_000_000_000

/** Microseconds of one call's budgets: four look-ups of the window, hold across all four, settle to a charge. */
const holdSettleUs = (table: Table, worker: number, calls: number): number => {
  const budgets = ['tenant:acme', 'key:k1', 'end_user:acme/u1', 'model:m1'].map((owner) =>
    openBudget(owner, 'month', 'Asia/Seoul'),
  )
  const run = () => {
    for (let call = 0; call < calls; call++) {
      const claims = budgets.map((budget) => claimOn(table, budget, LIMIT, now_ms++)!)
      const hold = BigInt(6_550_000 + (call & 1023))
      if (holdBudgets(table, worker, claims, hold) !== BUDGETS_HELD) throw new Error('bench: refused')
      settleBudgets(table, worker, claims, hold, 1_234_567n)
    }
  }
  return timed(run, calls)
}

const tokensUs = (table: Table, calls: number): number => {
  const claims = ['key', 'tenant', 'end_user', 'model'].map((kind) => ({
    subject: subjectOf(table, kind, 'tokens')!,
    per_minute: 1_000_000_000,
  }))
  return timed(() => {
    for (let call = 0; call < calls; call++) {
      if (holdTokens(table, 0, claims, 500, now_ms++).refused >= 0) throw new Error('bench: refused')
      settleTokens(table, 0, claims, 500, 300, now_ms)
    }
  }, calls)
}

const rateUs = (table: Table, calls: number): number => {
  const subject = subjectOf(table, 'key', 'rate')!
  return timed(() => {
    for (let call = 0; call < calls; call++) takeRate(table, subject, 'rate_tat_ns', 1_000_000, 1, now_ms++)
  }, calls)
}

// The first turn warms up the compiler.
const timed = (run: () => void, calls: number): number => {
  run()
  const started_ms = performance.now()
  run()
  return ((performance.now() - started_ms) / calls) * 1_000
}

/** Two processes at the same four budgets at once; the slower of the two, as each sees it. */
const contendedUs = async (path: string, calls: number): Promise<number> => {
  const children = [1, 2].map((worker) =>
    Bun.spawn({ cmd: [process.execPath, import.meta.path, 'child', path, `${worker}`, `${calls}`], stdout: 'pipe' }),
  )
  const texts = await Promise.all(children.map((child) => new Response(child.stdout).text()))
  return Math.max(...texts.map(Number))
}

/** The figures of holds and limits: `runs` alternations that take about `seconds` together. */
export const holdBench = async ({ seconds, runs }: { seconds: number; runs: number }) => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const path = join(folder, 'table')
  const table = createTable(path, 1_024, 0)
  const calls = Math.max(1_000, Math.round((seconds * 100_000) / runs))
  const values: Record<string, number[]> = {
    hold_settle_us: [],
    hold_settle_contended_us: [],
    tokens_us: [],
    rate_us: [],
  }
  for (let run = 0; run < runs; run++) {
    values['hold_settle_us']!.push(holdSettleUs(table, 0, calls))
    values['hold_settle_contended_us']!.push(await contendedUs(path, calls))
    values['tokens_us']!.push(tokensUs(table, calls))
    values['rate_us']!.push(rateUs(table, calls))
  }
  rmSync(folder, { recursive: true, force: true })
  const figures = Object.fromEntries(Object.entries(values).map(([name, list]) => [name, figure('us', list)]))
  const notes = [
    'hold_settle_us: windows looked up, hold across four budgets and settle, one process.',
    'hold_settle_contended_us: the same while a second process does it on the same four; the slower of the two.',
    'tokens_us: hold and settle tokens a minute over four limits. rate_us: one request limit.',
  ]
  return { figures, notes }
}

const figure = (unit: string, values: readonly number[]): Figure => {
  const sorted = values.toSorted((one, other) => one - other)
  return { value: sorted[sorted.length >> 1]!, unit, min: sorted[0]!, max: sorted.at(-1)!, n: sorted.length }
}

const [mode, path, worker, calls] = process.argv.slice(2)
if (import.meta.main && mode === 'child')
  process.stdout.write(`${holdSettleUs(openTable(path!), Number(worker), Number(calls))}`)
else if (import.meta.main)
  process.stdout.write(`${JSON.stringify(await holdBench({ seconds: 3, runs: 5 }), null, 2)}\n`)
