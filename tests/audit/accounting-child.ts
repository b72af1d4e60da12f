import { join } from 'node:path'
import { openJournalTail } from '../../src/journal/tail.ts'
import { runAccountant, startPositions } from '../../src/ledger/accountant.ts'
import { openReader } from '../../src/ledger/database.ts'
import { keepLog } from '../../src/ledger/log-keeper.ts'
import { openLedger } from '../../src/ledger/open-ledger.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { AT_MS, PRICES } from '../ledger/make.ts'
import { ORIGIN } from './small-house.ts'

/** An accountant that posts a journal until it is killed, signing all the while. Argument: data folder. */
const data = process.argv[2]!
const { store, ledger_log } = openLedger(data, join(data, 'audit'), ORIGIN)
process.stdout.write(`open ${JSON.stringify(ledger_log.log.repaired)}\n`)
const poster = createPoster(store, ledger_log)
keepLog({
  store,
  poster,
  ledger_log,
  house_reader: openReader(data, 'house'),
  letters: join(data, 'run/letters'),
  cosign: undefined,
  log: () => undefined,
})
const folder = join(data, 'journal')
const accountant = runAccountant({
  tail: openJournalTail({ folder, positions: startPositions(poster), discover_ms: 5 }),
  poster,
  prices: () => PRICES,
  now: () => AT_MS,
  is_live: () => true,
  poll_ms: 2,
})
setInterval(() => void ledger_log.checkpointLater(), 30)
await accountant.done
