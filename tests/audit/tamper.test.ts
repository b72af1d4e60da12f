import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { addSignatures, parseCheckpoint, signCheckpoint } from '../../src/audit/checkpoint.ts'
import { CheckpointStore } from '../../src/audit/checkpoint-store.ts'
import { fsck } from '../../src/audit/fsck.ts'
import { openLog } from '../../src/audit/log.ts'
import { newSignerKey, parseSignerKey } from '../../src/audit/note-key.ts'
import { freshFolder, good } from './folder.ts'
import { makeSmallHouse, ORIGIN } from './small-house.ts'

setDefaultTimeout(60_000)

/** A stopped house's files, changed in every way that could pay, must never pass. */

const folder = freshFolder()
const whole = `${folder.path}/whole`
/** One that was killed while a minute ran. */
const killed = `${folder.path}/killed`
const data = `${folder.path}/tampered`
const path = (file: string) => join(data, file)
beforeAll(async () => {
  await makeSmallHouse(whole)
  await makeSmallHouse(killed, 24, 2, 'killed')
})
afterAll(() => folder[Symbol.dispose]())

const restore = (from = whole) => {
  rmSync(data, { recursive: true, force: true })
  cpSync(from, data, { recursive: true })
}
const fault = (saved?: string) => fsck(data, { keys: [], saved }).fault
const newest = () => {
  const store = new CheckpointStore(`${whole}/audit`, 'read_only')
  const { note } = store.latest()!
  store.close()
  return note
}

/** Runs SQL on a copy as somebody does who owns the file: no trigger, no check in the way. */
const change = (file: string, work: (db: Database) => void) => {
  const db = new Database(path(file), { safeIntegers: true })
  db.run('PRAGMA ignore_check_constraints = ON')
  for (const { name } of db
    .prepare<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    .all())
    db.run(`DROP TRIGGER ${name}`)
  work(db)
  db.close()
}

test('the house as it was left is sound', () => {
  restore()
  expect(fsck(data, { keys: [], saved: newest() })).toMatchObject({ fault: undefined, notes: [] })
})

const TABLES = [
  'calls',
  'attempts',
  'entries',
  'prices',
  'refusals',
  'admin_actions',
  'rollups',
  'positions',
  'decisions',
] as const
/** Says only what has still to be done; the next start finds it out again. */
const DERIVED = new Set(['positions.finished'])

test.each(TABLES)('any changed field of a row of %s', (table) => {
  restore()
  change('ledger.db', (db) => {
    db.run('PRAGMA foreign_keys = OFF')
    const columns = db.prepare<{ name: string }, []>(`SELECT name FROM pragma_table_info('${table}')`).all()
    expect(columns.length).toBeGreaterThan(2)
    for (const [nth, { name: column }] of columns.entries()) {
      if (DERIVED.has(`${table}.${column}`)) continue
      const row = db
        .prepare<{ rowid: bigint; v: unknown }, [number]>(
          `SELECT rowid, ${column} AS v FROM ${table} LIMIT 1 OFFSET (? % (SELECT count(*) FROM ${table}))`,
        )
        .get(nth)!
      const write = db.prepare(`UPDATE ${table} SET ${column} = ? WHERE rowid = ?`)
      write.run(changed(row.v) as never, row.rowid)
      expect(fault() ?? `${table}.${column} changed from ${String(row.v)}: not found`).toMatch(NAMES[table])
      // A key of the row may be its rowid.
      db.prepare(`UPDATE ${table} SET ${column} = ? WHERE ${column} = ?`).run(row.v as never, changed(row.v) as never)
      if (row.v === null) db.run(`UPDATE ${table} SET ${column} = NULL WHERE ${column} = 1`)
    }
  })
  expect(fault()).toBeUndefined()
})

const NAMES: Record<(typeof TABLES)[number], RegExp> = {
  calls: /call_\d{4}|rows/,
  attempts: /call_\d{4}|attempts/,
  entries: /entr(y|ies)/,
  prices: /price/,
  refusals: /refus/,
  admin_actions: /admin/,
  rollups: /roll-up/,
  positions: /journal/,
  decisions: /decision/,
}

const changed = (value: unknown): unknown => {
  if (value === null) return 1
  if (typeof value === 'bigint') return value + 1_000n
  if (typeof value === 'string') return value === '' ? 'x' : `${value}x`
  if (!(value instanceof Uint8Array)) throw new Error(`no change for ${String(value)}`)
  return value.length === 0 ? Uint8Array.of(1) : value.with(0, value[0]! ^ 1)
}

test.each(['calls', 'attempts', 'entries', 'prices', 'refusals', 'admin_actions', 'rollups', 'positions', 'decisions'])(
  'a deleted row of %s: the first, one in the middle, the last',
  (table) => {
    for (const place of ['ASC', 'DESC', 'middle']) {
      restore()
      change('ledger.db', (db) => {
        const which =
          place === 'middle'
            ? `SELECT rowid FROM ${table} LIMIT 1 OFFSET (SELECT count(*) / 2 FROM ${table})`
            : `SELECT rowid FROM ${table} ORDER BY rowid ${place} LIMIT 1`
        db.run(`DELETE FROM ${table} WHERE rowid = (${which})`)
      })
      expect(fault() ?? `${table} ${place}: not found`).toMatch(
        /not in the ledger|rows|has no row|roll-up|position|call_\d{4}|is not finished/,
      )
    }
  },
)

describe('refused calls of a minute that runs', () => {
  const lines = (db: Database) =>
    db.prepare<{ n: bigint; count: bigint }, []>('SELECT count(*) AS n, sum(count) AS count FROM open_refusals').get()

  test('are no leaves, and no fault', () => {
    restore(killed)
    change('ledger.db', (db) => expect(lines(db)).toEqual({ n: 2n, count: 12n }))
    expect(fsck(data, { keys: [], saved: undefined })).toMatchObject({
      fault: undefined,
      notes: [expect.stringContaining('2 lines of refused calls are no leaves yet')],
    })
  })

  // A count that is raised is not told from a journal that is gone, which the ledger outlives.
  test.each([
    "at_ms = at_ms + 1000 WHERE key_id = ''",
    "key_id = 'key_2' WHERE key_id = 'key_1'",
    "tenant = 'globex' WHERE key_id = ''",
    "failure = 'rate_exceeded' WHERE key_id = 'key_1'",
    "count = count - 1 WHERE key_id = 'key_1'",
  ])('are found changed: %s', (assignment) => {
    restore(killed)
    change('ledger.db', (db) => expect(db.run(`UPDATE open_refusals SET ${assignment}`).changes).toBe(1))
    expect(fault()).toMatch(/^the ledger lacks \d+ refused calls of the journal: forbidden of key/)
  })

  test('are found deleted, line by line', () => {
    for (const [key_id, count] of [
      ['', 4],
      ['key_1', 8],
    ] as const) {
      restore(killed)
      change('ledger.db', (db) => db.run('DELETE FROM open_refusals WHERE key_id = ?', [key_id]))
      expect(fault()).toContain(`lacks ${count} refused calls of the journal: forbidden of key "${key_id}"`)
    }
  })
})

describe('rows', () => {
  test.each(['log_index', 'charge_nanodollars', 'tenant', 'request_sha256', 'salt'])(
    'two calls with their %s swapped',
    (column) => {
      restore()
      change('ledger.db', (db) => {
        const [one, other] = db
          .prepare<{ id: string; v: unknown }, []>(
            `SELECT id, ${column} AS v FROM calls WHERE id IN ('call_0003', 'call_0005') ORDER BY id`,
          )
          .all()
        db.prepare(`UPDATE calls SET ${column} = ? WHERE id = ?`).run(other!.v as never, one!.id)
        db.prepare(`UPDATE calls SET ${column} = ? WHERE id = ?`).run(one!.v as never, other!.id)
      })
      expect(fault()).toMatch(/call_000[35]/)
    },
  )

  test('two calls with all their fields swapped', () => {
    restore()
    change('ledger.db', (db) => {
      for (const [from, to] of [
        ['call_0003', 'swap'],
        ['call_0005', 'call_0003'],
        ['swap', 'call_0005'],
      ])
        db.run('UPDATE calls SET id = ? WHERE id = ?', [to!, from!])
    })
    expect(fault()).toMatch(/call_000[35]/)
  })

  test.each([
    ['calls', "'call_extra'"],
    ['entries', '(SELECT max(id) + 1 FROM entries)'],
    ['refusals', '(SELECT max(id) + 1 FROM refusals)'],
  ])('a row of %s that is a copy of another, under its own id', (table, id) => {
    for (const log_index of ['log_index', 'NULL']) {
      restore()
      change('ledger.db', (db) => {
        const columns = db.prepare<{ name: string }, []>(`SELECT name FROM pragma_table_info('${table}')`).all()
        const values = columns.map(({ name }) => ({ id, log_index })[name] ?? name)
        db.run(`INSERT INTO ${table} SELECT ${values.join(', ')} FROM ${table} LIMIT 1`)
      })
      expect(fault()).toContain(table)
    }
  })

  test('an admin action changed where it was made', () => {
    for (const column of ['at_ms', 'actor', 'action', 'subject', 'detail_json']) {
      restore()
      change('house.db', (db) => db.run(`UPDATE admin_log SET ${column} = 7 WHERE id = 2`))
      expect(fault()).toContain(`admin action 2: ${column}`)
    }
    restore()
    change('house.db', (db) => db.run('DELETE FROM admin_log WHERE id = 3'))
    expect(fault()).toContain('admin action 3')
  })

  test('an erased salt is no fault: the row still verifies', () => {
    restore()
    change('ledger.db', (db) => db.run("UPDATE calls SET salt = NULL WHERE tenant = 'acme'"))
    expect(fault()).toBeUndefined()
  })
})

/** Flips one bit at a time of a file and undoes it; every flip must be found. */
const flipAll = (file: string, step: number, from = 0, to = readFileSync(join(whole, file)).length) => {
  restore()
  const bytes = readFileSync(path(file))
  const missed: number[] = []
  let flips = 0
  for (let at = from; at < to; at += step) {
    bytes[at]! ^= 1 << (at % 8)
    writeFileSync(path(file), bytes)
    if (fault() === undefined) missed.push(at)
    bytes[at]! ^= 1 << (at % 8)
    flips++
  }
  expect(flips).toBeGreaterThan(10)
  expect(missed).toEqual([])
}

describe('files', () => {
  test('an edited node', () => flipAll('audit/nodes', 97))
  test('an edited leaf', () => flipAll('audit/leaves.data', 1201))
  test('an edited index of the leaves', () => flipAll('audit/leaves.index', 17))
  test('an edited checkpoint', () => flipAll('audit/checkpoints.data', 23))
  test('an edited journal', () => {
    const db = new Database(`${whole}/ledger.db`, { readonly: true })
    const places = db.prepare<{ series: string; segment: number; offset: number }, []>('SELECT * FROM positions').all()
    db.close()
    expect(places).toHaveLength(2)
    for (const { series, segment, offset } of places)
      flipAll(`journal/${series}-${String(segment).padStart(6, '0')}.journal`, 499, 0, offset)
  })

  test('a record of the journal rewritten with its chain of checksums', () => {
    restore()
    const file = 'journal/w00-000000-000000.journal'
    const bytes = rechained(readFileSync(path(file)), 'globex', 'glober')
    writeFileSync(path(file), bytes)
    expect(fault()).toMatch(/call_0000.*tenant/)
  })

  test.each([
    ['leaves.data', 10],
    ['leaves.index', 8],
    ['nodes', 32],
    ['nodes', 320],
  ])('the tail of %s cut by %d bytes', (file, bytes) => {
    restore()
    truncateSync(path(`audit/${file}`), readFileSync(path(`audit/${file}`)).length - bytes)
    expect(fault()).toMatch(/tail is missing|too early|ends at byte|sign/)
  })

  test('the newest checkpoint cut off is found against one that was kept', () => {
    restore()
    const index = readFileSync(path('audit/checkpoints.index'))
    truncateSync(path('audit/checkpoints.index'), index.length - 8)
    truncateSync(path('audit/checkpoints.data'), Number(index.readBigUInt64LE(index.length - 16)))
    expect(fault(newest())).toContain('is not among those of the log')
  })
})

describe('by somebody who has the signing key', () => {
  const signer = () => good(parseSignerKey(readFileSync(`${whole}/audit/signing-key`, 'utf8').trim()))
  const notes = () => {
    const store = new CheckpointStore(`${whole}/audit`, 'read_only')
    const all = Array.from({ length: store.count }, (_, nth) => store.at(nth))
    store.close()
    return all
  }
  const writeNotes = (all: readonly string[]) => {
    for (const file of ['data', 'index']) rmSync(path(`audit/checkpoints.${file}`))
    const store = new CheckpointStore(path('audit'))
    for (const note of all) store.append(note)
    store.close()
  }

  test('an older checkpoint signed again with another root', () => {
    restore()
    const all = notes()
    const nth = all.findIndex(({ checkpoint }) => checkpoint.size > 20)
    const forged = signCheckpoint({ ...all[nth]!.checkpoint, root: new Uint8Array(32).fill(9) }, [signer()])
    writeNotes(all.map(({ note }, at) => (at === nth ? forged : note)))
    expect(fault()).toContain(`checkpoint ${nth} signs another root`)
  })

  test('an older checkpoint signed by another key', () => {
    restore()
    const all = notes()
    const forged = signCheckpoint(all[3]!.checkpoint, [newSignerKey(ORIGIN)])
    writeNotes(all.map(({ note }, at) => (at === 3 ? forged : note)))
    expect(fault()).toContain('checkpoint 3')
    const { note } = good(parseCheckpoint(all[3]!.note))
    const doubled = addSignatures(note, good(parseCheckpoint(forged)).note.signatures)
    writeNotes(all.map(({ note: text }, at) => (at === 3 ? doubled : text)))
    expect(fault()).toBeUndefined()
  })

  test('row, leaf, nodes and every checkpoint rewritten: sound by itself, and found against a kept checkpoint', () => {
    restore()
    change('ledger.db', (db) => {
      db.run("UPDATE calls SET end_user = 'someone else' WHERE id = 'call_0004'")
    })
    const { leaves, sizes } = leavesOf(whole)
    const changed_leaves = leaves.map((leaf) =>
      leaf.includes('"id":"call_0004"') && leaf.includes('"type":"call"')
        ? leaf.replace('"end_user":"jo"', '"end_user":"someone else"')
        : leaf,
    )
    expect(changed_leaves).not.toEqual(leaves)
    for (const file of ['leaves.data', 'leaves.index', 'nodes', 'checkpoints.data', 'checkpoints.index'])
      rmSync(path(`audit/${file}`))
    rmSync(path('journal'), { recursive: true })
    const log = good(openLog(path('audit'), { origin: ORIGIN }))
    let at = 0
    for (const size of sizes) {
      good(log.append(changed_leaves.slice(at, size).map((leaf) => new TextEncoder().encode(leaf))))
      at = size
      good(log.checkpoint())
    }
    log.close()
    expect(fault()).toBeUndefined()
    expect(fault(newest())).toContain('history was rewritten')
  })

  test('the tail of everything cut: found against a kept checkpoint', () => {
    restore()
    const { leaves, sizes } = leavesOf(whole)
    const keep = sizes.filter((size) => size < leaves.length).at(-1)!
    change('ledger.db', (db) => {
      for (const table of ['calls', 'entries', 'prices', 'refusals', 'admin_actions'])
        db.run(`DELETE FROM ${table} WHERE log_index >= ${keep}`)
      db.run('DELETE FROM attempts WHERE call_id NOT IN (SELECT id FROM calls)')
      db.run('DELETE FROM rollups')
    })
    writeNotes(
      notes()
        .filter(({ checkpoint }) => checkpoint.size <= keep)
        .map(({ note }) => note),
    )
    const log = good(openLog(path('audit'), { origin: ORIGIN, ledger_size: keep }))
    log.close()
    expect(fault(newest())).toMatch(/kept checkpoint|roll-up|journal/)
    expect(fault(newest())).toContain('kept checkpoint')
  })
})

const leavesOf = (from: string) => {
  const log = good(openLog(`${from}/audit`, { origin: ORIGIN }))
  const leaves = Array.from({ length: log.size() }, (_, index) => new TextDecoder().decode(good(log.leaf(index))))
  log.close()
  const store = new CheckpointStore(`${from}/audit`, 'read_only')
  const sizes = Array.from({ length: store.count }, (_, nth) => store.at(nth).checkpoint.size)
  store.close()
  return { leaves, sizes: [...new Set(sizes)] }
}

/** Replaces the first appearance of a text by one of the same length and makes all checksums right again. */
const rechained = (bytes: Buffer, text: string, by: string): Buffer => {
  bytes.write(by, bytes.indexOf(text))
  let chain = bytes.readUInt32LE(24)
  for (let at = 64; bytes.readUInt32LE(at) !== 0;) {
    const length = bytes.readUInt32LE(at)
    const next = at + 8 + Math.ceil(length / 8) * 8
    chain = Bun.hash.crc32(bytes.subarray(at + 8, next), (chain ^ length) >>> 0)
    bytes.writeUInt32LE(chain, at + 4)
    at = next
  }
  return bytes
}
