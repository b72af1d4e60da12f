import { Database } from 'bun:sqlite'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fsck } from '../../src/audit/fsck.ts'
import { openLogReader } from '../../src/audit/read-side.ts'
import { readSegment } from '../../src/journal/reader.ts'
import { good } from '../audit/folder.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { exchangeRaw, requestBytes } from '../kit/raw-client.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Refused calls of several workers, with accountants killed in between: counted exactly, in one row and leaf a minute, key and reason. */

const WORKERS = 3
const BODY = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }

type Line = { readonly at_ms: number; readonly key_id: string; readonly failure: string; readonly count: number }

const linesOf = (house: TestHouse, table: string): Line[] => {
  const db = new Database(`${house.data}/ledger.db`, { readonly: true })
  try {
    db.run('PRAGMA busy_timeout = 1000')
    return db
      .query<Line, []>(`SELECT * FROM ${table} WHERE failure IN ('key_missing', 'rate_exceeded') ORDER BY at_ms, rowid`)
      .all()
  } finally {
    db.close()
  }
}

/** What each worker's life wrote down, and in which series. */
const journaled = (house: TestHouse): (Line & { readonly series: string })[] =>
  readdirSync(join(house.data, 'journal'))
    .filter((name) => name.endsWith('.journal'))
    .flatMap((name) => good(readSegment(readFileSync(join(house.data, 'journal', name)), name)).entries)
    .flatMap(({ record, series }) => (record?.kind === 'refusals' ? [{ ...record, series }] : []))

const sumsOf = (lines: readonly Line[]): Record<string, number> => {
  const sums: Record<string, number> = {}
  for (const { failure, count } of lines) sums[failure] = (sums[failure] ?? 0) + count
  return sums
}

const nameOf = ({ at_ms, key_id, failure }: Line): string => `${at_ms} ${key_id} ${failure}`

test(`calls that ${WORKERS} workers and their successors refuse are one row and one leaf a minute, key and reason`, async () => {
  const engine = startHostileEngine({ answers: [json(200, WHOLE('ok', 1, 1))] })
  await using house = await startHouse({
    workers: WORKERS,
    config: {
      engines: [{ name: 'e', url: engine.url }],
      models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true }],
      tenants: [{ name: 'few', limits: { requests_per_minute: 1 } }],
    },
  })
  const key = await house.key('few')
  const counts = { key_missing: 0, rate_exceeded: 0 }
  /** Each on a connection of its own, which any worker may take. */
  const refuse = async (calls: number): Promise<void> => {
    const one = async (nth: number) => {
      const headers: Record<string, string> = nth % 2 ? { authorization: `Bearer ${key}` } : {}
      const { status } = await exchangeRaw(house.port, requestBytes('POST', '/v1/chat/completions', headers, BODY))
      if (status === 401) counts.key_missing += 1
      else if (status === 429) counts.rate_exceeded += 1
      else expect(status).toBe(200)
    }
    for (let at = 0; at < calls; at += 20) await Promise.all(Array.from({ length: 20 }, (_, nth) => one(nth)))
  }
  const killAccountant = async () => {
    const [pid] = house.pids('accountant')
    process.kill(pid!, 'SIGKILL')
    await eventually(() => house.pids('accountant').some((each) => each !== pid), 5_000)
  }

  await refuse(300)
  // Replaced workers write down what they refused of the minute that runs.
  house.kill('SIGUSR2')
  await eventually(() => house.logged('worker_replaced').length >= 1, 20_000)
  await killAccountant()
  await eventually(() => house.logged('worker_replaced').length === WORKERS, 20_000)
  const before = { ...counts }
  await eventually(
    () => expect(sumsOf([...linesOf(house, 'refusals'), ...linesOf(house, 'open_refusals')])).toEqual(before),
    10_000,
  )
  await killAccountant()
  await refuse(300)
  await killAccountant()
  expect(await house.stop()).toBe(0)
  await engine.stop()

  const rows = linesOf(house, 'refusals')
  expect(linesOf(house, 'open_refusals')).toEqual([])
  expect(sumsOf(rows)).toEqual(counts)
  expect(counts.key_missing).toBe(300)
  expect(counts.rate_exceeded).toBeGreaterThan(280)
  const names = rows.map(nameOf)
  expect(names).toEqual([...new Set(names)])
  const said = journaled(house).filter((line) => names.includes(nameOf(line)))
  expect(sumsOf(said)).toEqual(counts)
  // Both reasons of all the lives of workers that refused any.
  expect(new Set(said.map(({ series }) => series)).size).toBeGreaterThan(WORKERS)
  expect(said.length).toBeGreaterThan(rows.length + WORKERS)

  const log = good(openLogReader(join(house.data, 'audit')))
  const leaves = Array.from({ length: log.size() }, (_, at) => JSON.parse(Buffer.from(good(log.leaf(at))).toString()))
  log.close()
  expect(leaves.filter((leaf) => leaf.type === 'refusal' && names.includes(nameOf(leaf))).map(nameOf)).toEqual(names)
  expect(fsck(house.data, { keys: [], saved: undefined })).toMatchObject({ fault: undefined, notes: [] })
})
