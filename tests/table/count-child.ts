import { giveCounts, takeCounts } from '../../src/table/counts.ts'
import { openTable, subjectOf } from '../../src/table/table.ts'

/** Takes and gives counts of one subject until it is killed or has done its rounds. Arguments: table, worker, limit, rounds, hold. */
const [path, worker_text, limit_text, rounds_text, hold] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
]
const table = openTable(path)
const worker = Number(worker_text)
const claims = [
  { subject: subjectOf(table, 'key', 'k')!, limit: Number(limit_text) },
  { subject: subjectOf(table, 'tenant', 't')!, limit: 0x7fff_ffff },
]
process.stdout.write('ready\n')
let admitted = 0
let seen_max = 0
for (let round = 0; round < Number(rounds_text); round++) {
  if (takeCounts(table, worker, claims) >= 0) continue
  admitted++
  seen_max = Math.max(seen_max, Atomics.load(table.i32, claims[0]!.subject * 2 + 8))
  if (hold !== 'hold') giveCounts(table, worker, claims)
}
process.stdout.write(`${JSON.stringify({ admitted, seen_max })}\n`)
