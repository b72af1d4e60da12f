import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { Failure } from '../../src/base/failure.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { openJournalTail } from '../../src/journal/tail.ts'
import { openJournal } from '../../src/journal/writer.ts'
import { runAccountant, startPositions } from '../../src/ledger/accountant.ts'
import { logged } from '../../src/ledger/admin-log.ts'
import { doChores } from '../../src/ledger/chores.ts'
import { openReader, openWriter } from '../../src/ledger/database.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { keepLog } from '../../src/ledger/log-keeper.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { syncPrices } from '../../src/ledger/price-store.ts'
import { priceList } from '../../src/ledger/pricing.ts'
import { AT_MS, attempt, ending, intent, progress } from '../ledger/make.ts'
import { good } from './folder.ts'

export const ORIGIN = 'example.com/weir'
const models = [{ name: 'm1', price: { input: '2', cached_input: '0.5', output: '8' }, free: false }]

/** The records of some calls of two tenants: with and without further engines, cut, recovered, and refused ones. */
const lifeOf = (call: number): JournalRecord[] => {
  const id = `call_${String(call).padStart(4, '0')}`
  const who = {
    tenant: call % 3 === 0 ? 'globex' : 'acme',
    end_user: call % 5 === 0 ? 'jö "x"\n' : 'jo',
    at_ms: AT_MS + call,
  }
  const records: JournalRecord[] = [intent(id, { ...who, request_sha256: new Uint8Array(32).fill(call) })]
  if (call % 7 === 0) {
    records.push(attempt(id))
    records.push({ kind: 'decision', call_id: id, at_ms: AT_MS + 9.5, text: `{"n":${call}}` })
  }
  if (call % 4 === 0) records.push(progress(id))
  if (call % 11 !== 10)
    records.push(
      ending(id, {
        prompt_tokens: 100 + call,
        cached_tokens: 50,
        completion_tokens: call,
        reasoning_tokens: call >> 1,
        response_sha256: new Uint8Array(32).fill(call + 1),
      }),
    )
  if (call % 13 === 0)
    records.push({
      kind: 'refusals',
      at_ms: call * 60_000,
      key_id: 'key_1',
      tenant: 'acme',
      failure: 'rate_exceeded',
      count: call + 1,
    })
  return records
}

/** What two workers refused in the minute that runs. */
const STILL_REFUSED: readonly JournalRecord[] = [
  ['key_1', 3],
  ['', 4],
  ['key_1', 5],
].map(([key_id, count]) => ({
  ...{ kind: 'refusals' as const, at_ms: AT_MS, key_id: String(key_id), tenant: 'acme' },
  ...{ failure: 'forbidden', count: Number(count) },
}))

/**
 * A data folder as a stopped house leaves it, with small files: journal, ledger, log, admin log; `calls` calls a life. One
 * that was `killed` has two lines of refused calls that are no rows yet.
 */
export const makeSmallHouse = async (data: string, calls = 24, lives = 2, end = 'stopped'): Promise<void> => {
  const folder = join(data, 'journal')
  mkdirSync(folder, { recursive: true })
  const house = openWriter(data, 'house')
  for (let life = 0; life < lives; life++) {
    for (const name of ['one', 'two'])
      good(
        logged(
          house,
          () => name,
          (subject) => ({ at_ms: AT_MS, actor: 'admin', action: 'tenants.create', subject, detail: { life } }),
        ),
      )
    const store = openWriter(data, 'ledger')
    const ledger_log = openLedgerLog(data, join(data, 'audit'), ORIGIN)
    const poster = createPoster(store, 'logged')
    const prices = priceList(syncPrices(store, models, AT_MS, 'logged'))
    const places = { letters: join(data, 'run/letters'), audit: join(data, 'audit'), log: () => undefined }
    const chores = doChores({
      ...{ store, poster, posted_until_ms: () => AT_MS, house_reader: openReader(data, 'house') },
      ...places,
    })
    const keeper = keepLog({ ledger_log, cosign: undefined, ...places })
    const journal = await openJournal({
      folder,
      worker_index: 0,
      incarnation: life,
      durability: 'standard',
      sync_ms: 5,
      segment_bytes: 64 * 1024,
    })
    if (journal instanceof Failure) throw journal.detail.cause
    const tail = openJournalTail({ folder, positions: startPositions(poster), discover_ms: 5 })
    const accountant = runAccountant({
      tail,
      poster,
      prices: () => prices,
      now: () => AT_MS,
      is_live: () => true,
      poll_ms: 5,
    })
    for (let call = 0; call < calls; call++) {
      for (const record of lifeOf(life * calls + call)) good(journal.append(record))
      if (call % 8 !== 7) continue
      await Bun.sleep(12)
      good(ledger_log.follow(1_000))
      good(ledger_log.log.checkpoint())
    }
    poster.transfer({
      call_id: null,
      at_ms: AT_MS,
      kind: 'grant',
      debit: 'grants',
      credit: 'tenant:acme',
      amount_nanodollars: 5n,
      reason: 'a gift',
    })
    if (end === 'killed' && life === lives - 1) for (const record of STILL_REFUSED) good(journal.append(record))
    await journal.close()
    await accountant.drain()
    await accountant.stop()
    tail.close()
    chores.stop(end === 'stopped' || life < lives - 1)
    store.sqlite.close()
    keeper.stop()
    ledger_log.close()
  }
  house.sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
  house.sqlite.close()
}
