import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { tickMs } from '../../src/base/clock.ts'
import { Failure } from '../../src/base/failure.ts'
import { type JournalFiles, real_files } from '../../src/journal/files.ts'
import { type Journal, openJournal } from '../../src/journal/writer.ts'
import { ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import type { House } from '../../src/pipeline/house.ts'
import { hotPath } from '../../src/pipeline/pipeline.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { SECRET, unitHouseAtEngine } from './unit-house.ts'

setDefaultTimeout(60_000)

/**
 * The last byte and the disk, over real sockets and with real files whose sync is held back: in strict mode `[DONE]`, or
 * a whole answer, does not leave before the sync that holds its ending has come back. In standard mode it does not wait.
 */

/** The real disk behind a gate. */
const gated = () => {
  let shut = false
  let held: (() => void)[] = []
  const gate = {
    /** Syncs that wait at the gate. */
    waiting: () => held.length,
    shut: () => void (shut = true),
    open: () => {
      shut = false
      for (const go of held.splice(0)) go()
    },
    files: {
      ...real_files,
      create: async (file, head, size_bytes) => {
        const made = await real_files.create(file, head, size_bytes)
        const sync = async () => {
          if (shut) await new Promise<void>((go) => held.push(go))
          await made.sync()
        }
        return { ...made, bytes: made.bytes, sync }
      },
    } satisfies JournalFiles,
  }
  return gate
}

const folder = tempFolder('weir-strict')
let stage: Awaited<ReturnType<typeof unitHouseAtEngine>>
beforeAll(async () => void (stage = await unitHouseAtEngine('text')))
afterAll(async () => {
  await stage[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

const serve = hotPath(({ code, status }) => new Response(JSON.stringify({ code }), { status }))
let incarnation = 1

/** A worker's data plane with a journal of its own. */
const open = async (durability: 'standard' | 'strict') => {
  const gate = gated()
  const journal = (await openJournal({
    ...{ folder: folder.path, worker_index: 0, incarnation: incarnation++, durability, sync_ms: 5 },
    files: gate.files,
  })) as Journal
  if (journal instanceof Failure) throw journal
  const house: House = { ...stage.unit.house, watch: stage.watch, tick: tickMs, journal }
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch: (request) => serve({ request, endpoint: ENDPOINTS.chat, keepOpen: () => undefined }, house),
  })
  const close = async () => {
    gate.open()
    await server.stop(true)
    await journal.close()
  }
  return { gate, journal, server, [Symbol.asyncDispose]: close }
}

const ask = async (port: number, stream: boolean) => {
  const client = await connectRaw(port)
  const body = { model: 'm1', stream, messages: [{ role: 'user', content: 'hi' }] }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${SECRET}` }, body))
  return client
}

const LAST = { 'a stream': [true, '[DONE]'], 'a whole answer': [false, '"total_tokens"'] } as const

for (const [name, [stream, last]] of Object.entries(LAST))
  describe(name, () => {
    test('strict: the end waits until the sync of its ending is back', async () => {
      await using house = await open('strict')
      house.gate.shut()
      using client = await ask(house.server.port!, stream)
      if (stream) await eventually(() => client.unread().includes('"stop"'), 5_000)
      // Intent and ending are appended, and a sync hangs.
      await eventually(() => house.journal.counts().records >= 2 && house.gate.waiting() > 0, 5_000)
      await Bun.sleep(150)
      expect(client.unread().includes(last)).toBe(false)
      expect(client.unread().length > 0).toBe(stream)
      const syncs = house.journal.counts().syncs
      house.gate.open()
      await eventually(() => client.unread().includes(last), 5_000)
      expect(house.journal.counts().syncs).toBeGreaterThan(syncs)
    })

    test('strict: a sync that began before its ending is not enough', async () => {
      await using house = await open('strict')
      house.gate.shut()
      // A sync of another record is under way when the call begins.
      const other = house.journal.append({
        ...{ kind: 'refusals', at_ms: 1, key_id: 'k', tenant: 't', failure: 'f', count: 1 },
      })
      const waiting = house.journal.synced(other as number)
      await eventually(() => house.gate.waiting() === 1, 5_000)
      using client = await ask(house.server.port!, stream)
      await eventually(() => house.journal.counts().records >= 3, 5_000)
      // That one comes back, and the next hangs.
      house.gate.open()
      house.gate.shut()
      expect(await waiting).toBeUndefined()
      await eventually(() => house.gate.waiting() === 1, 5_000)
      await Bun.sleep(150)
      expect(client.unread().includes(last)).toBe(false)
      house.gate.open()
      await eventually(() => client.unread().includes(last), 5_000)
    })

    test('standard: the end does not wait for a sync', async () => {
      await using house = await open('standard')
      house.gate.shut()
      using client = await ask(house.server.port!, stream)
      await eventually(() => client.unread().includes(last), 5_000)
      await eventually(() => house.gate.waiting() > 0, 5_000)
      expect([house.journal.counts().records, house.journal.counts().syncs]).toEqual([2, 0])
    })
  })
