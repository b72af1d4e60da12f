import { nowMs } from '../base/clock.ts'
import { openJournalTail } from '../journal/tail.ts'
import { parseSeriesName } from '../journal/format.ts'
import { runAccountant, startPositions } from '../ledger/accountant.ts'
import { openWriter } from '../ledger/database.ts'
import { tidyJournal } from '../ledger/journal-tidy.ts'
import { createPoster } from '../ledger/poster.ts'
import { syncPrices } from '../ledger/price-store.ts'
import { priceList } from '../ledger/pricing.ts'
import { HEADER, WORKER, WORKER_STATE } from '../table/layout.ts'
import { openTable, type Table, workerI32 } from '../table/table.ts'
import type { ChildContext, ChildLife } from './child.ts'

const POLL_MS = 15
const REPORT_MS = 100

/** The accountant: the one writer of the ledger. Posts what earlier houses left before it says that it is ready. */
export const runAccountantProcess = async ({ boot, log, ready }: ChildContext): Promise<ChildLife> => {
  const { files } = boot
  const table = openTable(files.table)
  const store = openWriter(files.data, 'ledger')
  const poster = createPoster(store)
  let prices = priceList(syncPrices(store, boot.config.models, nowMs()))
  let keep_ms = boot.config.ledger.journal_keep_ms
  const accountant = runAccountant({
    tail: openJournalTail({ folder: files.journal, positions: startPositions(poster) }),
    poster,
    prices: () => prices,
    now: nowMs,
    is_live: (series) => isLive(table, series),
    poll_ms: POLL_MS,
    tidy: (positions) => tidyJournal({ folder: files.journal, positions, keep_ms }),
    on_trouble: (cause, attempt) => log('warn', 'posting_postponed', { cause, attempt }),
  })
  accountant.done.catch((cause: unknown) => {
    log('error', 'accountant_failed', { cause })
    process.exit(1)
  })
  const report = setInterval(() => {
    const { posted_calls, lag_ms } = accountant.stats()
    table.f64[HEADER.accountant_seen_ms] = nowMs()
    table.f64[HEADER.accountant_lag_ms] = lag_ms
    table.f64[HEADER.posted_calls] = posted_calls
  }, REPORT_MS)
  const started_ms = nowMs()
  await accountant.drain()
  log('info', 'ledger_caught_up', { took_ms: nowMs() - started_ms, posted_calls: accountant.stats().posted_calls })
  Atomics.store(table.i32, HEADER.accountant_ready, 1)
  ready(0)

  return {
    onConfig: ({ config }) => {
      prices = priceList(syncPrices(store, config.models, nowMs()))
      keep_ms = config.ledger.journal_keep_ms
    },
    drain: async () => {
      await accountant.drain()
      await accountant.stop()
      clearInterval(report)
      store.sqlite.close()
    },
  }
}

/** True while the worker that writes a series lives, as the supervisor's table has it. */
const isLive = (table: Table, series: string): boolean => {
  const parsed = parseSeriesName(series)
  if (parsed === undefined) return false
  const { worker_index, incarnation } = parsed
  return (
    Atomics.load(table.i32, workerI32(worker_index, WORKER.state)) !== WORKER_STATE.none &&
    Atomics.load(table.i32, workerI32(worker_index, WORKER.incarnation)) === incarnation
  )
}
