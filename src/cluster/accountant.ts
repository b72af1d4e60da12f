import { nowMs } from '../base/clock.ts'
import { usd } from '../base/money.ts'
import type { Config } from '../config/schema.ts'
import { openJournalTail } from '../journal/tail.ts'
import { parseSeriesName } from '../journal/format.ts'
import { type Accountant, runAccountant, startPositions } from '../ledger/accountant.ts'
import { keepOrders } from '../ledger/adjustment-posting.ts'
import { watchBudgets } from '../ledger/budget-threshold.ts'
import { doChores } from '../ledger/chores.ts'
import { openReader, openWriter, type Store } from '../ledger/database.ts'
import { spentBetween } from '../ledger/invoice-sums.ts'
import { tidyJournal } from '../ledger/journal-tidy.ts'
import { createPoster } from '../ledger/poster.ts'
import { syncPrices } from '../ledger/price-store.ts'
import { priceList } from '../ledger/pricing.ts'
import type { Log } from '../observe/log.ts'
import { HEADER, WORKER, WORKER_STATE } from '../table/layout.ts'
import { openTable, type Table, workerI32 } from '../table/table.ts'
import { BudgetKeeper } from './budget-keeper.ts'
import type { ChildContext, ChildLife } from './child.ts'

const POLL_MS = 15
const REPORT_MS = 100
const RETRY_MS = 200
/** What an accountant without a house tries to post for so long. */
const DRAIN_MS_MIN = 3_000

/** The accountant: the one writer of the ledger. Posts what earlier houses left before it says that it is ready. */
export const runAccountantProcess = async ({ boot, log, ready }: ChildContext): Promise<ChildLife> => {
  const { files } = boot
  const table = openTable(files.table)
  const store = openWriter(files.data, 'ledger')
  const poster = createPoster(store, 'logged')
  const pricesOf = async ({ models }: Config) =>
    priceList(await written(() => syncPrices(store, models, nowMs(), 'logged'), log))
  let prices = await pricesOf(boot.config)
  let keep_ms = boot.config.ledger.journal_keep_ms
  let { tenants } = boot.config
  const alerts = budgetAlerts(store, () => tenants, log)
  const accountant = runAccountant({
    tail: openJournalTail({ folder: files.journal, positions: startPositions(poster) }),
    poster,
    prices: () => prices,
    now: nowMs,
    is_live: (series) => isLive(table, series),
    poll_ms: POLL_MS,
    tidy: (positions) => tidyJournal({ folder: files.journal, positions, keep_ms }),
    on_posted: (rows) => alerts.posted(rows),
    on_trouble: (cause, attempt) => log('warn', 'posting_postponed', { cause, attempt }),
  })
  accountant.done.catch((cause: unknown) => {
    log('error', 'accountant_failed', { cause })
    process.exit(1)
  })
  const budgets = new BudgetKeeper(boot.config, { table, store, files, now: nowMs, log })
  const report = startReport(table, accountant, budgets, log)
  const chores = doChores({
    store,
    poster,
    posted_until_ms: () => accountant.stats().posted_until_ms,
    house_reader: openReader(files.data, 'house'),
    letters: files.letters,
    audit: files.audit,
    log,
  })
  const orders = keepOrders({
    poster,
    house_reader: openReader(files.data, 'house'),
    log,
    on_posted: ({ kind }) => kind === 'refund' && budgets.refunded(),
  })
  const started_ms = nowMs()
  await accountant.drain()
  log('info', 'ledger_caught_up', { took_ms: nowMs() - started_ms, posted_calls: accountant.stats().posted_calls })
  budgets.load()
  Atomics.store(table.i32, HEADER.accountant_ready, 1)
  ready(0)

  return {
    onConfig: async ({ config }) => {
      prices = await pricesOf(config)
      tenants = config.tenants
      budgets.adopt(config)
      keep_ms = config.ledger.journal_keep_ms
    },
    drain: async (grace_ms) => {
      const all_posted = await postWhatIsLeft(accountant, grace_ms)
      clearInterval(report)
      orders.stop()
      chores.stop(all_posted)
      store.sqlite.close()
      if (!all_posted) throw new Error('not everything could be posted; the journals keep it for the next start')
    },
  }
}

/** True once everything is posted. A full disk or another's lock can last; what is not posted stays in the journals. */
const postWhatIsLeft = async (accountant: Accountant, grace_ms: number): Promise<boolean> => {
  const posted = accountant.drain().then(() => true)
  const all_posted = await Promise.race([posted, Bun.sleep(Math.max(grace_ms, DRAIN_MS_MIN)).then(() => false)])
  await accountant.stop()
  return all_posted
}

/** Writes the accountant's figures into the shared table, and looks after the budgets, now and then. */
const startReport = (table: Table, accountant: Accountant, budgets: BudgetKeeper, log: Log): Timer =>
  setInterval(() => {
    try {
      budgets.turn()
    } catch (cause) {
      log('error', 'budgets_not_kept', { cause })
    }
    const { posted_calls, lag_ms } = accountant.stats()
    table.f64[HEADER.accountant_seen_ms] = nowMs()
    table.f64[HEADER.accountant_lag_ms] = lag_ms
    table.f64[HEADER.posted_calls] = posted_calls
  }, REPORT_MS)

/** Tells the log when a tenant's spending reaches the share that a budget names. */
const budgetAlerts = (store: Store, tenants: () => Config['tenants'], log: Log) =>
  watchBudgets({
    tenants,
    spent: (tenant, from_ms, to_ms) => spentBetween(store, tenant, from_ms, to_ms),
    tell: ({ tenant, budget: { per, timezone, alert_share: share }, spent, limit }) =>
      log('warn', 'budget_threshold', { tenant, per, timezone, share, spent_usd: usd(spent), limit_usd: usd(limit) }),
  })

/** Repeats a write of the ledger until neither another's lock nor a full disk is in its way. */
const written = async <T>(write: () => T, log: Log): Promise<T> => {
  for (let attempt = 1; ; attempt++) {
    try {
      return write()
    } catch (cause) {
      const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
      if (!/^SQLITE_(BUSY|LOCKED|FULL|IOERR)/.test(code)) throw cause
      log('warn', 'prices_postponed', { cause, attempt })
    }
    await Bun.sleep(RETRY_MS)
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
