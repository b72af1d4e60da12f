import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { CheckpointStore } from '../../src/audit/checkpoint-store.ts'
import { fsck } from '../../src/audit/fsck.ts'
import { consistencyFault } from '../../src/audit/verify.ts'
import { openJournal } from '../../src/journal/writer.ts'
import { openWriter } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { ending, intent } from '../ledger/make.ts'
import { freshFolder, good } from './folder.ts'
import { ORIGIN } from './small-house.ts'

setDefaultTimeout(60_000)

/** The issue asks for 200; fewer on a plain `bun test`. */
const ROUNDS = Number(process.env['AUDIT_ROUNDS'] ?? 15)

test(
  `accountant and auditor killed ${ROUNDS} times under load: log and rows agree after each restart, and no signed checkpoint is ever contradicted`,
  async () => {
    using folder = freshFolder()
    const data = folder.path
    mkdirSync(join(data, 'journal'))
    openWriter(data, 'house').sqlite.close()
    const journal = good(
      await openJournal({
        folder: join(data, 'journal'),
        worker_index: 0,
        incarnation: 0,
        durability: 'standard',
        sync_ms: 5,
      }),
    )
    let calls = 0
    let loading = true
    // Only while an accountant lives, or two hundred checks of the whole would take an hour.
    let alive = false
    const load = (async () => {
      while (loading) {
        for (let n = 0; alive && n < 3; n++) {
          const id = `call_${String(calls++).padStart(6, '0')}`
          good(journal.append(intent(id)))
          good(journal.append(ending(id)))
        }
        await Bun.sleep(2)
      }
    })()
    const totals = { behind: 0, restarts: 0, opened: 0 }
    let before = 0
    for (let round = 0; round < ROUNDS; round++) {
      const child = Bun.spawn([process.execPath, join(import.meta.dir, 'accounting-child.ts'), data], {
        stdout: 'pipe',
        stderr: 'inherit',
      })
      alive = true
      const output = child.stdout.getReader()
      // Some die while they still repair what the last one left, most while they post.
      if (round % 5 !== 4) {
        const said = JSON.parse(new TextDecoder().decode((await output.read()).value).slice(5)) as { behind: number }
        totals.behind += said.behind
        totals.opened++
      }
      await Bun.sleep(Math.random() * (round % 5 === 4 ? 90 : 200))
      child.kill('SIGKILL')
      await child.exited
      alive = false
      totals.restarts++
      const { fault, counts } = fsck(data, { keys: [], saved: undefined })
      expect(fault ?? `round ${round}: sound`).toBe(`round ${round}: sound`)
      expect(counts.signed).toBeGreaterThanOrEqual(before)
      before = counts.signed
      restarted(data)
    }
    loading = false
    await load
    const ledger = openWriter(data, 'ledger')
    expect(findFaults(ledger)).toEqual([])
    ledger.sqlite.close()
    const last = openLedgerLog(data, join(data, 'audit'), ORIGIN)
    const { log } = last
    const store = new CheckpointStore(join(data, 'audit'), 'read_only')
    const signed = Array.from({ length: store.count }, (_, nth) => store.at(nth).checkpoint)
    store.close()
    let pairs = 0
    for (const [nth, older] of signed.entries())
      for (const newer of signed.slice(nth)) {
        if (older.size === 0) continue
        const { proof } = good(log.consistency(older.size, newer.size))
        const claim = { from: older.size, to: newer.size, from_root: older.root, to_root: newer.root, proof }
        expect(consistencyFault(claim)).toBeUndefined()
        pairs++
      }
    expect(pairs).toBeGreaterThan(2)
    last.close()
    await journal.close()
    expect(totals.opened).toBeGreaterThan(ROUNDS / 2)
    process.stderr.write(`${JSON.stringify({ ...totals, calls, leaves: before, checkpoints: signed.length, pairs })}\n`)
  },
  60_000 + ROUNDS * 6_000,
)

/** What the next start makes of it: every row has its leaf, every leaf is signed, and root, size and rows agree. */
const restarted = (data: string): void => {
  const ledger_log = openLedgerLog(data, join(data, 'audit'), ORIGIN)
  while (good(ledger_log.follow(1_000)) > 0);
  expect(ledger_log.behind()).toBe(0)
  good(ledger_log.log.checkpoint())
  const size = ledger_log.log.size()
  ledger_log.close()
  const { fault, counts } = fsck(data, { keys: [], saved: undefined })
  expect({ fault, leaves: counts.leaves, signed: counts.signed }).toEqual({
    fault: undefined,
    leaves: size,
    signed: size,
  })
}
