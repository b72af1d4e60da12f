import { rmSync } from 'node:fs'
import { tempFolder, type Roll } from '../kit/wait.ts'
import { Failure } from '../../src/base/failure.ts'
import { BudgetKeeper } from '../../src/cluster/budget-keeper.ts'
import { parseSeriesName } from '../../src/journal/format.ts'
import { callIdOf, type JournalRecord } from '../../src/journal/record.ts'
import { openJournalTail } from '../../src/journal/tail.ts'
import { type Journal, openJournal } from '../../src/journal/writer.ts'
import { startPositions } from '../../src/ledger/accountant.ts'
import type { Store } from '../../src/ledger/database.ts'
import { createPoster, type Poster } from '../../src/ledger/poster.ts'
import { advance, emptyBooks, fold, type Posting, settle } from '../../src/ledger/posting.ts'
import type { House } from '../../src/pipeline/house.ts'
import { reap } from '../../src/table/counts.ts'
import { HEADER, SUBJECT, TABLE_MAGIC, TABLE_VERSION, WORKER, WORKER_STATE } from '../../src/table/layout.ts'
import { ratesIn, restoreRates } from '../../src/table/kept-rates.ts'
import { createTable, subjectOf, type Table, workerI32 } from '../../src/table/table.ts'
import { FakeDisk } from './fake-disk.ts'
import { ledgers } from './fake-ledger.ts'
import type { Plant } from './plant.ts'
import { catalogueOf, CONFIG, type Fuse, simHouse } from './sim-house.ts'

/** Timers that never fire: what they would do is a step of the simulation. */
const NEVER_MS = 2 ** 31 - 1
const JOURNAL = '/journal'
/** Calls that are open for less long are not stored. */
const YOUNG_MS = 2_000
const SUBJECTS_MAX = 64

export type SimWorker = {
  readonly index: number
  readonly series: string
  readonly incarnation: number
  readonly journal: Journal
  readonly house: House
  readonly fuse: Fuse
  readonly die: () => void
  alive: boolean
  reaped: boolean
}

type Accountant = {
  books: ReturnType<Poster['books']>
  readonly tail: ReturnType<typeof openJournalTail>
  readonly keeper: BudgetKeeper
}

let shared: { readonly table: Table; readonly ledger: ReturnType<typeof ledgers> } | undefined

/** Everything below a call: disk, table, ledger, and the processes, which the caller starts, drives and kills. */
export class Machine {
  readonly disk = new FakeDisk()
  readonly table: Table
  readonly store: Store
  readonly poster: Poster
  readonly workers: SimWorker[] = []
  readonly plant: Plant | undefined
  readonly strict: boolean
  readonly complaints: string[] = []
  /** What is committed to the ledger, by call. */
  readonly posted = new Map<string, { readonly charge: bigint; readonly ending: string }>()
  now_ms = Date.UTC(2026, 2, 28, 20, 30)
  accountant: Accountant | undefined
  #incarnation = 0
  readonly #prices

  constructor(strict: boolean, plant: Plant | undefined) {
    shared ??= { table: tableOnce(), ledger: ledgers(CONFIG) }
    this.strict = strict
    this.plant = plant
    this.table = shared.table
    this.store = shared.ledger.open()
    this.poster = createPoster(this.store)
    this.#prices = shared.ledger.prices
    this.blankTable()
    this.disk.lies = plant === 'disk_lies'
  }

  /** What a supervisor does first. */
  blankTable(): void {
    const { table } = this
    table.i32.fill(0)
    table.known.clear()
    table.i32[HEADER.version] = TABLE_VERSION
    table.i32[HEADER.subjects_max] = SUBJECTS_MAX
    table.i32[HEADER.magic] = TABLE_MAGIC
  }

  /** Starts a worker in a free column; undefined if all that died are owed something. */
  async startWorker(): Promise<SimWorker | undefined> {
    const { table } = this
    let index = 0
    while (
      this.workers.some((worker) => worker.index === index && (worker.alive || !worker.reaped)) ||
      Atomics.load(table.i32, workerI32(index, WORKER.budgets_owed)) !== 0
    )
      index++
    if (index > 20) return undefined
    const incarnation = this.#incarnation++
    Atomics.store(table.i32, workerI32(index, WORKER.incarnation), incarnation)
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.live)
    const { files, die } = this.disk.process()
    const journal = await openJournal({
      folder: JOURNAL,
      worker_index: index,
      incarnation,
      durability: this.strict ? 'strict' : 'standard',
      sync_ms: NEVER_MS,
      retry_ms: NEVER_MS,
      segment_bytes: 64 * 1024,
      now: () => this.now_ms,
      files,
    })
    if (journal instanceof Failure) {
      Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.none)
      return undefined
    }
    if (this.plant === 'rate_forgotten') table.i64[subjectOf(table, 'model_limits', 'm0')! + SUBJECT.rate_tat_ns] = 0n
    const fuse = { left: Number.POSITIVE_INFINITY }
    const now = () => this.now_ms
    const catalogue = catalogueOf(table, this.now_ms)
    const house = simHouse(
      table,
      index,
      catalogue,
      journal,
      fuse,
      now,
      (record) => this.#alter(record),
      (level, event) => {
        if (level === 'error') this.complaints.push(event)
      },
    )
    const worker = { index, series: journal.series, incarnation, journal, house, fuse, die, alive: true, reaped: false }
    this.workers.push(worker)
    return worker
  }

  #alter(record: JournalRecord): JournalRecord | undefined {
    if (record.kind === 'ending' && this.plant === 'ending_lost') return undefined
    if (record.kind === 'intent' && this.plant === 'settled_elsewhere')
      return { ...record, at_ms: record.at_ms + 86_400_000 }
    return record
  }

  killWorker(worker: SimWorker): void {
    worker.alive = false
    worker.die()
    void worker.journal.close()
  }

  /** The supervisor hears of a death. */
  bury(worker: SimWorker): void {
    const { table } = this
    Atomics.store(table.i32, workerI32(worker.index, WORKER.state), WORKER_STATE.none)
    const alive = this.workers.filter((other) => other.alive).map(({ index }) => index)
    if (this.plant === 'never_reaped') Atomics.store(table.i32, workerI32(worker.index, WORKER.budgets_owed), 1)
    else reap(table, worker.index, alive)
    worker.reaped = true
  }

  startAccountant(): void {
    const { table, store } = this
    const tail = openJournalTail({
      folder: JOURNAL,
      positions: startPositions(this.poster),
      discover_ms: 0,
      now: () => this.now_ms,
      files: this.disk.process().files,
    })
    const keeper = new BudgetKeeper(CONFIG, {
      table,
      store,
      files: { journal: JOURNAL, keys: '/none' },
      now: () => this.now_ms,
      log: (level, event) => void (level === 'warn' && this.complaints.push(event)),
      exists: (path) => this.plant !== 'reap_early' && this.disk.files.has(path),
    })
    this.accountant = { books: this.poster.books(), tail, keeper }
    if (Atomics.load(table.i32, HEADER.accountant_ready) === 1) keeper.load()
  }

  /**
   * One turn of the accountant's loop (`ledger/accountant.ts`, without its pauses); answers whether there was anything to
   * do. `dies` says where it is killed on the way; `again` that it meets every record twice.
   */
  account(records_max: number, dies?: 'before_commit' | 'after_commit', again = false): boolean {
    const { accountant, table } = this
    if (accountant === undefined) return false
    const { tail, books } = accountant
    for (const { series, state } of tail.states())
      if (state === 'live' && !isLive(table, series)) tail.writerDied(series)
    const { entries } = tail.poll({ records_max, bytes_max: 1 << 20 })
    let worked = entries.length > 0
    if (entries.length > 0) {
      const ids = entries.flatMap(({ record }) => (record === undefined ? [] : [callIdOf(record)]))
      const posted = this.poster.posted(ids)
      if (!(posted instanceof Set)) throw posted.cause
      const batch = again ? [...entries, ...entries] : entries
      const posting = fold(books, posted, this.#prices, batch, this.now_ms - YOUNG_MS)
      if (this.plant === 'post_again' && again) {
        const intents = entries.filter(({ record }) => record?.kind === 'intent')
        const { entries: twice } = fold(emptyBooks, new Set(), this.#prices, intents)
        for (const entry of twice) this.poster.transfer(entry)
      }
      if (!this.#write(posting, dies)) return true
    }
    for (const end of tail.states()) {
      if (end.state !== 'finished' || books.positions.get(end.series)?.finished) continue
      const posting = settle(books, this.#prices, end.series, end)
      if (!this.#write(posting, dies)) return true
      worked = true
    }
    return worked
  }

  #write(posting: Posting, dies: 'before_commit' | 'after_commit' | undefined): boolean {
    if (dies !== 'before_commit') {
      const { is } = this.poster.post(posting)
      if (is !== 'posted') throw new Error(`posting: ${is}`)
      for (const { id, charge_nanodollars, ending } of posting.rows) {
        if (this.posted.has(id)) throw new Error(`${id} is settled twice`)
        this.posted.set(id, { charge: charge_nanodollars ?? 0n, ending })
      }
    }
    if (dies === undefined) advance(this.accountant!.books, posting)
    else this.accountant = undefined
    return dies === undefined
  }

  /** Everything is killed at once; of the disk a part may be lost. Then the house starts again. */
  async restart(power: boolean, roll: Roll): Promise<void> {
    for (const worker of this.workers) if (worker.alive) this.killWorker(worker)
    if (power) this.disk.loosePower(roll)
    this.workers.length = 0
    // Whether the table's file outlives a power failure nobody promises.
    const rates = power || this.plant === 'rate_forgotten_by_house' ? [] : ratesIn(this.table, this.now_ms)
    this.blankTable()
    restoreRates(this.table, rates)
    this.startAccountant()
    this.drain()
    this.ready()
  }

  /** The accountant has caught up: workers may start. */
  ready(): void {
    if (this.plant !== 'cold_start_empty') this.accountant!.keeper.load()
    Atomics.store(this.table.i32, HEADER.accountant_ready, 1)
  }

  /** Posts all that is there. */
  drain(): void {
    // A series is met in one turn and known to be dead in the next.
    for (let idle = 0; idle < 3;) idle = this.account(1_000) ? 0 : idle + 1
  }

  close(): void {
    for (const worker of this.workers) if (worker.alive) this.killWorker(worker)
    this.store.sqlite.close()
  }
}

const isLive = ({ i32 }: Table, series: string): boolean => {
  const { worker_index, incarnation } = parseSeriesName(series)!
  return (
    Atomics.load(i32, workerI32(worker_index, WORKER.state)) !== WORKER_STATE.none &&
    Atomics.load(i32, workerI32(worker_index, WORKER.incarnation)) === incarnation
  )
}

const tableOnce = (): Table => {
  const folder = tempFolder('weir-simulation')
  const table = createTable(`${folder.path}/table`, SUBJECTS_MAX, 0)
  rmSync(folder.path, { recursive: true, force: true })
  return table
}
