import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fsck } from '../../src/audit/fsck.ts'
import { HEADER_BYTES } from '../../src/journal/format.ts'
import { readSegment } from '../../src/journal/reader.ts'
import { Failure } from '../../src/base/failure.ts'
import { openReader } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { startHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { bodyOf, strikingEngine } from './matrix.ts'
import { call } from './traffic.ts'

setDefaultTimeout(60_000)

/**
 * The accountant may post what the disk does not have yet: after a failure of the power the journal ends before the
 * ledger's position. The last frames are taken out of a journal by hand, as the power would have.
 */

test('a journal that is shorter than what is posted: the house starts, settles what was open, and fsck is content', async () => {
  await using engine = strikingEngine({ point: undefined, strike: () => undefined })
  using folder = tempFolder('weir-lost-tail')
  const settings = {
    workers: 1,
    data: `${folder.path}/data`,
    config: {
      engines: [{ name: 'e1', url: engine.url, probe_ms: 0 }],
      models: [{ name: 'm1', targets: [{ engine: 'e1' }], price: { input: '2.00', output: '8.00' } }],
      tenants: [{ name: 'acme', budgets: [{ usd: '1000' }] }],
    },
  }
  const first = await startHouse(settings)
  const key = await first.key('acme')
  for (let at = 0; at < 6; at++) expect((await call(first.url, key, bodyOf(`c${at}`, false))).status).toBe(200)
  await first.rowsReach(6)
  await first.killTree()
  await first[Symbol.asyncDispose]()

  const journal = `${settings.data}/journal`
  const used = readdirSync(journal).filter((name) => {
    const read = readSegment(readFileSync(`${journal}/${name}`), name)
    return !(read instanceof Failure) && read.entries.length > 0
  })
  expect(used).toHaveLength(1)
  const file = `${journal}/${used[0]}`
  const bytes = readFileSync(file)
  const { entries } = readSegment(bytes, 'x') as Exclude<ReturnType<typeof readSegment>, Failure>
  expect(entries.length).toBeGreaterThanOrEqual(12)
  // Of the last two calls nothing is left, of the one before them only its beginning.
  bytes.fill(0, entries.at(-5)!.offset)
  expect(entries.at(-5)!.offset).toBeGreaterThan(HEADER_BYTES)
  writeFileSync(file, bytes)

  const second = await startHouse(settings)
  expect((await call(second.url, key, bodyOf('after', false))).status).toBe(200)
  await eventually(() => expect(second.rows()).toHaveLength(7), 5_000)
  const ledger = openReader(second.data, 'ledger')
  expect(findFaults(ledger)).toEqual([])
  expect(ledger.sqlite.prepare('SELECT count(*) AS n FROM open_calls').get()).toEqual({ n: 0n })
  // Nothing of the old journal is waited for.
  expect(ledger.sqlite.prepare('SELECT count(*) AS n FROM positions WHERE finished = 0').get()).toEqual({ n: 1n })
  ledger.sqlite.close()
  expect(await second.stop()).toBe(0)
  const { fault } = fsck(second.data, { keys: [], saved: undefined })
  expect(fault).toBeUndefined()
  await second[Symbol.asyncDispose]()
})
