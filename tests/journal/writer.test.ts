import { callIdOf } from '../../src/journal/record.ts'
import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import fs from 'node:fs'
import { Failure } from '../../src/base/failure.ts'
import { real_files } from '../../src/journal/files.ts'
import { type JournalEntry, readSegment } from '../../src/journal/reader.ts'
import { type Journal, openJournal } from '../../src/journal/writer.ts'
import { eventually, gate, tempFolder } from '../kit/wait.ts'
import { ending, filesWith, good, intent, openSmall } from './make.ts'

setDefaultTimeout(60_000)

const readFolder = (folder: string): { ids: string[]; stops: string[] } => {
  const ids: string[] = []
  const stops: string[] = []
  const names = fs.readdirSync(folder).filter((name) => name.endsWith('.journal'))
  for (const name of names.toSorted()) {
    const { entries, stop } = good(readSegment(fs.readFileSync(`${folder}/${name}`), name))
    ids.push(...entries.map(({ record }: JournalEntry) => callIdOf(record!)))
    stops.push(stop)
  }
  return { ids, stops }
}

/** Appends until the journal refuses; returns the ids of what it took. */
const fill = (journal: Journal, prefix = 'call'): string[] => {
  const taken: string[] = []
  for (let i = 0; i < 100_000; i++) {
    const id = `${prefix}_${i}`
    if (journal.append(intent(id)) instanceof Failure) return taken
    taken.push(id)
  }
  throw new Error('the journal took 100,000 records')
}

const noSpace = () => Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })

test('a record is in the file when append returns', async () => {
  using folder = tempFolder()
  const journal = await openSmall(folder.path, { sync_ms: 60_000 })
  good(journal.append(intent('call_1')))
  const file = fs.readFileSync(`${folder.path}/w01-000001-000000.journal`)
  expect(good(readSegment(file, 's')).entries.map(({ record }) => record)).toEqual([intent('call_1')])
  expect(good(readSegment(file, 's')).stop).toBe('end')
  await journal.close()
})

test('the next segment is there in time where turns of the event loop are long', async () => {
  using folder = tempFolder()
  const making = real_files.create(`${folder.path}/w01-000001-000000.journal`, new Uint8Array(64), 16 * 1024 * 1024)
  let made = false
  void making.then(() => (made = true))
  let turns = 0
  // Written piece by piece, each in a turn of its own, it would take more than 256.
  for (; !made && turns < 256; turns++) {
    const until_ms = performance.now() + 20
    while (performance.now() < until_ms);
    await new Promise((resolve) => setImmediate(resolve))
  }
  ;(await making).close()
  expect(turns).toBeLessThan(200)
  const file = fs.readFileSync(`${folder.path}/w01-000001-000000.journal`)
  expect([file.length, file.every((byte) => byte === 0)]).toEqual([16 * 1024 * 1024, true])
})

test('the length is stored last: while a payload is copied its frame does not exist', async () => {
  using folder = tempFolder()
  const lengths: number[] = []
  const files = filesWith({
    create: async (...given) => {
      const made = await real_files.create(...given)
      const { bytes } = made
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      bytes.set = (source, at = 0) => {
        lengths.push(view.getUint32(at - 8, true))
        Uint8Array.prototype.set.call(bytes, source, at)
        lengths.push(view.getUint32(at - 8, true))
      }
      return made
    },
  })
  const journal = await openSmall(folder.path, { files })
  for (let i = 0; i < 3; i++) good(journal.append(intent(`call_${i}`)))
  expect(lengths).toEqual([0, 0, 0, 0, 0, 0])
  await journal.close()
  expect(readFolder(folder.path).ids).toEqual(['call_0', 'call_1', 'call_2'])
})

test('a series goes on over many segments, positions only grow, and closing leaves no unused segment', async () => {
  using folder = tempFolder()
  const journal = await openSmall(folder.path)
  const ids: string[] = []
  let last = 0
  for (let i = 0; i < 2_000; i++) {
    const id = `call_${i}`
    const at = await eventually(() => good(journal.append(i % 2 ? ending(id) : intent(id))))
    expect(at).toBeGreaterThan(last)
    last = at
    ids.push(id)
  }
  expect(await journal.close()).toBeUndefined()
  const read = readFolder(folder.path)
  expect(read.ids).toEqual(ids)
  expect(read.stops.length).toBeGreaterThan(5)
  expect(read.stops).toEqual([...Array(read.stops.length - 1).fill('segment_ends'), 'series_ends'])
  expect(journal.counts().records).toBe(2_000)
})

test('a closed journal refuses, and closing twice is one closing', async () => {
  using folder = tempFolder()
  const journal = await openSmall(folder.path)
  expect(await Promise.all([journal.close(), journal.close()])).toEqual([undefined, undefined])
  const refused = journal.append(intent('call_1'))
  expect(refused instanceof Failure && refused.code).toBe('journal_full')
  expect(journal.has_room()).toBe(false)
  expect(readFolder(folder.path)).toEqual({ ids: [], stops: ['series_ends'] })
})

test('a series is never written twice; leftovers of a killed life are removed', async () => {
  using folder = tempFolder()
  fs.writeFileSync(`${folder.path}/w01-000000-000004.journal.making`, 'half')
  fs.writeFileSync(`${folder.path}/w02-000000-000004.journal.making`, 'of another worker, perhaps alive')
  const options = { folder: folder.path, worker_index: 1, incarnation: 1, durability: 'standard', sync_ms: 5 } as const
  const journal = good(await openJournal({ ...options, segment_bytes: 65_536 }))
  good(journal.append(intent('call_1')))
  const again = await openJournal(options)
  expect(again instanceof Failure && again.detail.says).toBe(
    'The journal series w01-000001 exists: take a new incarnation.',
  )
  await journal.close()
  expect(fs.readdirSync(folder.path).toSorted()).toEqual([
    'w01-000001-000000.journal',
    'w02-000000-000004.journal.making',
  ])
})

test('options out of range are bugs', async () => {
  const options = { folder: '/nowhere', worker_index: 1, incarnation: 1, durability: 'standard', sync_ms: 5 } as const
  await expect(openJournal({ ...options, worker_index: 32 })).rejects.toThrow('worker 32')
  await expect(openJournal({ ...options, incarnation: 1_000_000 })).rejects.toThrow('incarnation 1000000')
  await expect(openJournal({ ...options, segment_bytes: 65_540 })).rejects.toThrow('65540')
})

describe('group commit', () => {
  test('in strict mode nobody goes on before the disk has it, and who comes meanwhile shares the next sync', async () => {
    using folder = tempFolder()
    const gates = [gate(), gate(), gate()]
    let started = 0
    const sync = async (real: () => Promise<void>) => {
      await gates[started++]!.opened
      await real()
    }
    const files = filesWith({ sync })
    const journal = await openSmall(folder.path, { files, durability: 'strict', sync_ms: 60_000 })
    const settled: string[] = []
    const call = (id: string) => {
      const at = good(journal.append(ending(id)))
      return journal.synced(at)!.then((failure) => settled.push(failure ? `${id} failed` : id))
    }
    const first = [call('a'), call('b')]
    await eventually(() => started === 1)
    const second = [call('c'), call('d'), call('e')]
    await Bun.sleep(20)
    expect([started, settled]).toEqual([1, []])
    gates[0]!.open()
    await Promise.all(first)
    expect(settled).toEqual(['a', 'b'])
    await eventually(() => started === 2)
    expect(settled).toEqual(['a', 'b'])
    gates[1]!.open()
    await Promise.all(second)
    expect([started, settled]).toEqual([2, ['a', 'b', 'c', 'd', 'e']])
    expect(await journal.synced(1)).toBeUndefined()
    expect(journal.counts().syncs).toBe(2)
    gates[2]!.open()
    await journal.close()
  })

  test('a group that spans segments waits for all of them, the older first', async () => {
    using folder = tempFolder()
    const synced: string[] = []
    const files = filesWith({
      create: async (file, ...rest) => {
        const made = await real_files.create(file, ...rest)
        return { ...made, sync: () => (synced.push(file.slice(-9, -8)), made.sync()) }
      },
    })
    const journal = await openSmall(folder.path, { files, durability: 'strict', sync_ms: 60_000 })
    // The first segment takes about 300 intents.
    const ids: string[] = []
    for (let i = 0; i < 400; i++) {
      ids.push(`call_${i}`)
      await eventually(() => good(journal.append(intent(`call_${i}`))))
    }
    expect(synced).toEqual([])
    expect(await journal.flush()).toBeUndefined()
    expect(synced).toEqual(['0', '1'])
    await journal.close()
    expect(readFolder(folder.path).ids).toEqual(ids)
  })

  test('in standard mode nobody waits, and the disk has it soon after', async () => {
    using folder = tempFolder()
    let syncs = 0
    const files = filesWith({ sync: (real) => (syncs++, real()) })
    const journal = await openSmall(folder.path, { files, sync_ms: 20 })
    for (let i = 0; i < 50; i++) expect(await journal.synced(good(journal.append(intent(`call_${i}`))))).toBeUndefined()
    expect(syncs).toBe(0)
    await eventually(() => syncs === 1)
    await Bun.sleep(60)
    // Nothing new: the disk is left alone.
    expect(syncs).toBe(1)
    await journal.close()
  })
})

describe('a failing disk', () => {
  test('who waits is told, no call is admitted, and all is well once a sync succeeds', async () => {
    using folder = tempFolder()
    let broken = true
    const sync = (real: () => Promise<void>) => (broken ? Promise.reject(new Error('input/output error')) : real())
    const files = filesWith({ sync })
    const journal = await openSmall(folder.path, { files, durability: 'strict' })
    const at = good(journal.append(ending('call_1')))
    const failed = await journal.synced(at)
    expect(failed?.code).toBe('journal_full')
    expect(failed?.detail.cause).toEqual(new Error('input/output error'))
    expect([journal.has_room(), journal.trouble()?.code]).toEqual([false, 'journal_full'])
    good(journal.append(ending('call_2')))
    broken = false
    await eventually(() => journal.has_room())
    expect(journal.trouble()).toBeUndefined()
    expect(await journal.synced(at)).toBeUndefined()
    await journal.close()
    expect(readFolder(folder.path).ids).toEqual(['call_1', 'call_2'])
  })
})

describe('a full disk', () => {
  test('shows when a journal is opened', async () => {
    using folder = tempFolder()
    const files = filesWith({ create: () => Promise.reject(noSpace()) })
    const options = {
      folder: folder.path,
      worker_index: 1,
      incarnation: 1,
      durability: 'standard',
      sync_ms: 5,
    } as const
    const refused = await openJournal({ ...options, files })
    expect(refused instanceof Failure && refused.code).toBe('journal_full')
  })

  test('calls are refused while there is room left for their endings; room that returns is used', async () => {
    using folder = tempFolder()
    let full = false
    const files = filesWith({ create: (...given) => (full ? Promise.reject(noSpace()) : real_files.create(...given)) })
    const journal = await openSmall(folder.path, { files })
    full = true
    const admitted: string[] = []
    for (let i = 0; journal.has_room(); i++) {
      admitted.push(`call_${i}`)
      good(journal.append(intent(`call_${i}`)))
      if (i % 10 === 0) await Bun.sleep(1)
    }
    await eventually(() => journal.trouble()?.code === 'journal_full')
    // Half a segment is left: about 150 endings.
    const ended = Array.from({ length: 150 }, (_, i) => `call_${i}`)
    for (const id of ended) good(journal.append(ending(id)))
    expect(journal.has_room()).toBe(false)
    const rest = fill(journal, 'rest')
    expect(rest.length).toBeLessThan(50)
    full = false
    await eventually(() => journal.has_room())
    expect(journal.trouble()).toBeUndefined()
    good(journal.append(ending('last')))
    await journal.close()
    expect(readFolder(folder.path).ids).toEqual([...admitted, ...ended, ...rest, 'last'])
  })

  const mounted = (path: string) =>
    process.getuid?.() === 0 &&
    Bun.spawnSync(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path], { stderr: 'ignore' }).success
  const probe = tempFolder()
  const can_mount = mounted(probe.path)
  if (can_mount) Bun.spawnSync(['umount', probe.path])

  // Needs the right to mount a file system of 1 MiB; skipped, and listed as such, where that is not allowed.
  test.skipIf(!can_mount)('a real one refuses in time, kills nobody, and recovers', async () => {
    using folder = tempFolder()
    expect(mounted(folder.path)).toBe(true)
    try {
      const path = `${folder.path}/journal`
      const journal = await openSmall(path, { segment_bytes: 256 * 1024 })
      const ids: string[] = []
      for (let i = 0; journal.has_room(); i++) {
        ids.push(`call_${i}`)
        good(journal.append(intent(`call_${i}`)))
        if (i % 10 === 0) await Bun.sleep(1)
      }
      await eventually(
        () => (journal.trouble()?.detail.cause as { code?: string } | undefined)?.code === 'ENOSPC',
        15_000,
      )
      for (let i = 0; i < 500; i++) {
        ids.push(`end_${i}`)
        good(journal.append(ending(`end_${i}`)))
      }
      expect(readFolder(path).ids).toEqual(ids)
      fs.rmSync(`${path}/w01-000001-000000.journal`)
      await eventually(() => journal.has_room(), 15_000)
      expect(await journal.close()).toBeUndefined()
      expect(fs.readdirSync(path).filter((name) => name.endsWith('.making'))).toEqual([])
    } finally {
      Bun.spawnSync(['umount', '-l', folder.path])
    }
  })
})
