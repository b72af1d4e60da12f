import { openLog } from '../../src/audit/log.ts'
import { Failure } from '../../src/base/failure.ts'
import { leavesOf } from './reference.ts'

/** Appends the test's leaves until it is killed: `appender FOLDER`. Says each size after the append returned. */
const log = openLog(process.argv[2]!, { origin: 'example.com/crash' })
if (log instanceof Failure) throw new Error(log.detail.says)
process.stdout.write(`open ${log.size()}\n`)
for (let round = 0; ; round++) {
  const count = 1 + ((round * 131) % 700)
  const first = log.append(leavesOf(log.size(), log.size() + count))
  if (first instanceof Failure) throw new Error(first.detail.says)
  process.stdout.write(`size ${log.size()}\n`)
  if (round % 5 === 4) {
    const signed = log.checkpoint()
    if (signed instanceof Failure) throw new Error(signed.detail.says)
    process.stdout.write(`signed ${log.size()}\n`)
  }
}
