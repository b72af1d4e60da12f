import { join } from 'node:path'
import { openJournalTail } from '../../src/journal/tail.ts'
import { runAccountant, startPositions } from '../../src/ledger/accountant.ts'
import { doChores } from '../../src/ledger/chores.ts'
import { openReader, openWriter } from '../../src/ledger/database.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { keepLog } from '../../src/ledger/log-keeper.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { AT_MS, PRICES } from '../ledger/make.ts'
import { ORIGIN } from './small-house.ts'

/** An accountant and an auditor in one process, which post a journal and sign until it is killed. Argument: data folder. */
const data = process.argv[2]!
const ledger_log = openLedgerLog(data, join(data, 'audit'), ORIGIN)
process.stdout.write(`open ${JSON.stringify({ behind: ledger_log.behind() })}\n`)
const store = openWriter(data, 'ledger')
const poster = createPoster(store, 'logged')
const places = { letters: join(data, 'run/letters'), audit: join(data, 'audit'), log: () => undefined }
keepLog({ ledger_log, cosign: undefined, ...places })
const folder = join(data, 'journal')
const accountant = runAccountant({
  tail: openJournalTail({ folder, positions: startPositions(poster), discover_ms: 5 }),
  poster,
  prices: () => PRICES,
  now: () => AT_MS,
  is_live: () => true,
  poll_ms: 2,
})
doChores({
  ...{ store, poster, house_reader: openReader(data, 'house'), ...places },
  posted_until_ms: () => accountant.stats().posted_until_ms,
})
setInterval(() => void ledger_log.log.checkpointLater(), 30)
await accountant.done
