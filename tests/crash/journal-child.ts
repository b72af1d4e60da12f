import { writeSync } from 'node:fs'
import { Failure } from '../../src/base/failure.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { openJournal } from '../../src/journal/writer.ts'

/**
 * Appends as fast as it can until it is killed. After every few records it says on its standard output how many append
 * has taken so far: a decimal number a line.
 */
const [folder = '', incarnation = '', durability = ''] = process.argv.slice(2)

const journal = await openJournal({
  folder,
  worker_index: 3,
  incarnation: Number(incarnation),
  durability: durability === 'strict' ? 'strict' : 'standard',
  sync_ms: 5,
  segment_bytes: 256 * 1024,
})
if (journal instanceof Failure) throw new Error('the journal did not open', { cause: journal.detail.cause })

const record = (number: number): JournalRecord => ({
  kind: 'attempt',
  call_id: String(number),
  at_ms: number,
  // From nothing to 3 KiB, so that a kill meets copies of every size.
  engine: 'e'.repeat((number * 37) % 100),
  engine_model: number % 50 === 0 ? 'm'.repeat(3_000) : 'm',
  because: '',
  serves: '',
})

for (let taken = 0; ;) {
  for (let i = 0; i < 10; i++) {
    const at = journal.append(record(taken))
    // Faster than the disk makes segments: not taken, so not counted.
    if (at instanceof Failure) break
    taken++
    if (durability === 'strict' && i === 9) await journal.synced(at)
  }
  writeSync(1, `${taken}\n`)
  await new Promise((turn) => setImmediate(turn))
}
