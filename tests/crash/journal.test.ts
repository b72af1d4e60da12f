import { callIdOf } from '../../src/journal/record.ts'
import { expect, setDefaultTimeout, test } from 'bun:test'
import fs from 'node:fs'
import path from 'node:path'
import { type JournalFiles, real_files } from '../../src/journal/files.ts'
import { openJournalTail } from '../../src/journal/tail.ts'
import { ending, good, openSmall } from '../journal/make.ts'
import { eventually, forAllAsync, rollFrom, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const child_file = path.join(import.meta.dir, 'journal-child.ts')

/**
 * Starts a writer, kills it some time after its first word, and returns how many records it said that append had taken.
 * `meanwhile` is called again and again while it writes.
 */
const killedWriter = async (
  folder: string,
  incarnation: number,
  durability: string,
  after_ms: number,
  meanwhile: () => void,
) => {
  const child = Bun.spawn([process.execPath, child_file, folder, String(incarnation), durability], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  let said = ''
  let timer: ReturnType<typeof setTimeout> | undefined
  for await (const chunk of child.stdout) {
    timer ??= setTimeout(() => child.kill('SIGKILL'), after_ms)
    said += Buffer.from(chunk).toString('latin1')
    meanwhile()
  }
  await child.exited
  expect(child.signalCode).toBe('SIGKILL')
  // A number that the kill cut in two would be a smaller one.
  return Number(said.slice(0, said.lastIndexOf('\n')).split('\n').at(-1))
}

test('kill -9 at any moment loses no record that append had taken, and tears none', async () => {
  const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))
  const roll = rollFrom(seed)
  using folder = tempFolder()
  const tail = openJournalTail({ folder: folder.path, discover_ms: 0 })
  let acknowledged = 0
  for (let round = 0; round < 20; round++) {
    const durability = round % 4 === 0 ? 'strict' : 'standard'
    const context = `SEED=${seed} round ${round}`
    const series = `w03-${String(round).padStart(6, '0')}`
    const found: (string | undefined)[] = []
    const read = () => {
      for (let more = true; more;) {
        const batch = tail.poll({ records_max: 5_000, bytes_max: 1_000_000 })
        more = batch.more
        found.push(...batch.entries.map(({ record }) => callIdOf(record!)))
      }
    }
    const taken = await killedWriter(folder.path, round, durability, 1 + roll(60), read)
    tail.writerDied(series)
    read()
    expect([context, found]).toEqual([context, Array.from({ length: found.length }, (_, number) => String(number))])
    expect(found.length, context).toBeGreaterThanOrEqual(taken)
    // At most the few records between two words of the writer are there beyond what it said.
    expect(found.length, context).toBeLessThanOrEqual(taken + 10)
    const state = tail.states().find((one) => one.series === series)
    expect(state, context).toMatchObject({
      state: 'finished',
      closed: false,
      torn: false,
      damages: [],
      failure: undefined,
    })
    acknowledged += taken
  }
  expect(acknowledged).toBeGreaterThan(1_000)
  tail.close()
}, 30_000)

/** Real files that remember what a power failure would leave: of each segment, what was stored when its last sync began. */
const filesUnderPower = () => {
  const durable = new Map<string, Buffer>()
  const create: JournalFiles['create'] = async (file, ...rest) => {
    const made = await real_files.create(file, ...rest)
    durable.set(path.basename(file), Buffer.from(made.bytes))
    const sync = async () => {
      const stored = Buffer.from(made.bytes)
      await made.sync()
      durable.set(path.basename(file), stored)
    }
    return { ...made, sync }
  }
  return { files: { ...real_files, create }, durable }
}

test('a power failure at any moment loses nothing that strict mode has confirmed', async () => {
  await forAllAsync(10, async (roll) => {
    using folder = tempFolder()
    using after = tempFolder()
    const { files, durable } = filesUnderPower()
    const journal = await openSmall(folder.path, { files, durability: 'strict', sync_ms: 3 })
    const appended: string[] = []
    const confirmed: string[] = []
    let on = true
    const caller = async (name: number) => {
      for (let i = 0; on; i++) {
        const id = `${name}_${i}`
        const at = await eventually(() => good(journal.append(ending(id))))
        appended.push(id)
        expect(await journal.synced(at)).toBeUndefined()
        confirmed.push(id)
        if (roll(4) === 0) await Bun.sleep(roll(3))
      }
    }
    const callers = Array.from({ length: 20 }, (_, name) => caller(name))
    await eventually(() => confirmed.length > 20, 10_000)
    await Bun.sleep(roll(60))
    const promised = confirmed.slice()
    for (const [name, bytes] of durable) fs.writeFileSync(`${after.path}/${name}`, bytes)
    on = false
    await Promise.all(callers)
    await journal.close()

    const tail = openJournalTail({ folder: after.path })
    tail.writerDied(journal.series)
    const { entries } = tail.poll({ records_max: 100_000, bytes_max: 100_000_000 })
    const kept = entries.map(({ record }) => callIdOf(record!))
    expect(kept).toEqual(appended.slice(0, kept.length))
    expect(promised.filter((id) => !kept.includes(id))).toEqual([])
    expect(tail.states()[0]).toMatchObject({ state: 'finished', damages: [] })
  })
})
