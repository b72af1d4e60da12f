import { Database } from 'bun:sqlite'
import { appendFileSync, readFileSync } from 'node:fs'

/**
 * Preloaded into the processes of a house under test (`BUN_OPTIONS=--preload`), so that the house itself has no switch for
 * it. In the accountant each commit takes so many milliseconds longer as the file `BENCH_DELAY_FILE` says at that moment,
 * blocking the process, as a slow disk does. In a worker, and in `inline.ts`, the lateness of a timer is written down.
 */

const { BENCH_DELAY_FILE: delay_file, BENCH_LAG_FILE: lag_file } = process.env

/** Blocks for as long as the file says. */
export const wait = (): void => {
  const delay_ms = Number(readFileSync(delay_file!, 'utf8'))
  if (delay_ms > 0) Bun.sleepSync(delay_ms)
}

const TICK_MS = 5
/** How often the notes are written. */
export const FLUSH_MS = 200

/** Adds lines of `time lateness`, both in milliseconds, to the file. */
export const noteLag = (): void => {
  let expected_ms = performance.now() + TICK_MS
  let lines = ''
  let written_ms = expected_ms
  setInterval(() => {
    const now_ms = performance.now()
    lines += `${Date.now()} ${Math.max(0, now_ms - expected_ms).toFixed(3)}\n`
    expected_ms = now_ms + TICK_MS
    if (now_ms < written_ms + FLUSH_MS) return
    written_ms = now_ms
    appendFileSync(lag_file!, lines)
    lines = ''
  }, TICK_MS).unref()
}

const [, script, role] = process.argv
if (script?.endsWith('/src/main.ts') && role === 'accountant') {
  const { prepare } = Database.prototype
  Database.prototype.prepare = function (this: Database, ...given: Parameters<typeof prepare>) {
    const made = prepare.apply(this, given)
    if (given[0] !== 'COMMIT') return made
    const run = made.run.bind(made)
    made.run = (...values: never[]) => {
      wait()
      return run(...values)
    }
    return made
  } as typeof prepare
}
if (script?.endsWith('/src/main.ts') && role === 'worker') noteLag()
