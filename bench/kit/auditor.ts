import { setPriority } from 'node:os'
import { join } from 'node:path'
import { AUDITOR_NICE } from '../../src/cluster/auditor.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { keepLog } from '../../src/ledger/log-keeper.ts'

/** The auditor of one data folder after the other: a line of standard input names the next, an empty one none. */
setPriority(0, AUDITOR_NICE)
let stop = (): void => undefined
for await (const data of console) {
  stop()
  stop = () => undefined
  if (data !== '') {
    const ledger_log = openLedgerLog(data, join(data, 'audit'), 'bench.example/log')
    const keeper = keepLog({ ledger_log, letters: join(data, 'letters'), cosign: undefined, log: () => undefined })
    stop = () => {
      keeper.stop()
      ledger_log.close()
    }
  }
  process.stdout.write('.')
}
