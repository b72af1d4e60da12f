import { expect, test } from 'bun:test'
import { generateKeyPairSync, sign } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CheckpointStore } from '../../src/audit/checkpoint-store.ts'
import { parseCheckpoint, verifyCheckpoint } from '../../src/audit/checkpoint.ts'
import { formatSignatureLine } from '../../src/audit/note.ts'
import { cosignedText, verifierKey, WITNESS_KEY } from '../../src/audit/note-key.ts'
import { openLog } from '../../src/audit/log.ts'
import { cosigner } from '../../src/audit/witness.ts'
import { Failure } from '../../src/base/failure.ts'
import { doChores } from '../../src/ledger/chores.ts'
import { openReader, openWriter } from '../../src/ledger/database.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { keepLog } from '../../src/ledger/log-keeper.ts'
import { sendLetter } from '../../src/ledger/mailbox.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { emptyBooks, fold } from '../../src/ledger/posting.ts'
import { AT_MS, ending, intent, journal, PRICES } from '../ledger/make.ts'
import { eventually } from '../kit/wait.ts'
import { freshFolder, good } from './folder.ts'
import { leavesOf } from './reference.ts'
import { ORIGIN } from './small-house.ts'

const kept = (data: string, cosign?: Parameters<typeof keepLog>[0]['cosign']) => {
  mkdirSync(data, { recursive: true })
  openWriter(data, 'house').sqlite.close()
  const store = openWriter(data, 'ledger')
  const ledger_log = openLedgerLog(data, join(data, 'audit'), ORIGIN)
  const poster = createPoster(store, 'logged')
  const warned: string[] = []
  const letters = join(data, 'letters')
  const places = {
    letters,
    audit: join(data, 'audit'),
    log: (_level: string, event: string) => void warned.push(event),
  }
  const chores = doChores({
    ...{ store, poster, posted_until_ms: () => AT_MS, house_reader: openReader(data, 'house') },
    ...places,
  })
  const keeper = keepLog({ ledger_log, cosign, ...places })
  const grant = () =>
    poster.transfer({
      call_id: null,
      at_ms: AT_MS,
      kind: 'grant',
      debit: 'grants',
      credit: 'tenant:acme',
      amount_nanodollars: 1n,
      reason: '',
    })
  const notes = () => {
    const store = new CheckpointStore(join(data, 'audit'), 'read_only')
    const all = Array.from({ length: store.count }, (_, nth) => store.at(nth))
    store.close()
    return all
  }
  const stop = () => {
    chores.stop(true)
    store.sqlite.close()
    keeper.stop()
    ledger_log.close()
  }
  return { store, ledger_log, stop, letters, warned, grant, notes }
}

test('new leaves are signed within a second, and at the end whatever is left', async () => {
  using folder = freshFolder()
  const { stop, grant, notes, warned } = kept(folder.path)
  for (let round = 1; round <= 3; round++) {
    grant()
    await eventually(() => expect(notes().at(-1)?.checkpoint.size).toBe(round), 1_000)
  }
  for (let n = 0; n < 50; n++) grant()
  stop()
  expect(notes().at(-1)?.checkpoint.size).toBe(53)
  expect(warned).toEqual([])
})

test('a witness cosigns what is signed, and its signature is stored and served', async () => {
  using folder = freshFolder()
  const pair = generateKeyPairSync('ed25519')
  const public_key = new Uint8Array(pair.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32))
  const key = verifierKey('witness.example/w', WITNESS_KEY, public_key)
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch: async (request) => {
      const body = await request.text()
      const { note } = good(parseCheckpoint(body.slice(body.indexOf('\n\n') + 2)))
      const bytes = new Uint8Array(72)
      new DataView(bytes.buffer).setBigUint64(0, 1_700_000_000n)
      bytes.set(sign(null, Buffer.from(cosignedText(note.text, 1_700_000_000)), pair.privateKey), 8)
      await Bun.sleep(30)
      return new Response(formatSignatureLine({ name: key.name, key_id: key.key_id, bytes }))
    },
  })
  const witness = { url: `http://127.0.0.1:${server.port}/add-checkpoint`, keys: [key], timeout_ms: 2_000 }
  const { ledger_log, stop, grant, notes } = kept(folder.path, cosigner(witness))
  grant()
  const signed_by = await eventually(() => {
    const { checkpoint, note } = notes().at(-1)!
    const signed = good(verifyCheckpoint(note, [...ledger_log.log.verifiers(), key])).signed_by
    return checkpoint.size === 1 && signed.length === 2 && signed
  }, 3_000)
  expect((signed_by as { key: { name: string } }[]).map((by) => by.key.name)).toEqual([ORIGIN, 'witness.example/w'])
  stop()
  server.stop(true)
})

test('a letter is answered once, by whoever is the auditor then; without one it is taken back; one that is damaged is dropped', async () => {
  using folder = freshFolder()
  const letters = join(folder.path, 'letters')
  expect((await sendLetter(letters, { kind: 'rotate_key' }, 60)) as Failure).toMatchObject({ code: 'overloaded' })
  writeFileSync(join(letters, 'auditor', 'letter_0.json'), '')
  const asked = sendLetter(letters, { kind: 'rotate_key' }, 5_000)
  const { ledger_log, stop, notes } = kept(folder.path)
  expect(good(await asked)['verifier_key']).toStartWith(ORIGIN)
  expect(ledger_log.log.verifiers()).toHaveLength(2)
  expect(notes().at(-1)!.note.split('\n\n')[1]!.trim().split('\n')).toHaveLength(2)
  stop()
})

test('salts are said to be erased once no file of the ledger has their bytes, which a reader may keep there', async () => {
  using folder = freshFolder()
  const { store, stop, letters } = kept(folder.path)
  const records = journal('w00-000001', [intent('call_1', { tenant: 'acme' }), ending('call_1')])
  expect(createPoster(store, 'logged').post(fold(emptyBooks, new Set(), PRICES, records))).toEqual({ is: 'posted' })
  const { salt } = store.sqlite.prepare('SELECT salt FROM calls').get() as { salt: Uint8Array }
  const has = () => ['ledger.db', 'ledger.db-wal'].map((name) => readFileSync(join(folder.path, name)).includes(salt))
  const reader = openReader(folder.path, 'ledger')
  reader.sqlite.run('BEGIN')
  expect(reader.sqlite.prepare('SELECT count(*) AS n FROM calls').get()).toEqual({ n: 1n })
  const asked = sendLetter(letters, { kind: 'erase_salts', tenant: 'acme' })
  await eventually(() => expect(store.sqlite.prepare('SELECT salt FROM calls').get()).toEqual({ salt: null }), 5_000)
  expect(has()).toContain(true)
  reader.sqlite.run('COMMIT')
  reader.sqlite.close()
  expect(good(await asked)).toEqual({ erased: 1 })
  expect(has()).toEqual([false, false])
  stop()
})

test('a checkpoint that waits for the disk is of the log as it was when it was asked for', async () => {
  using folder = freshFolder()
  const log = good(openLog(folder.path, { origin: ORIGIN }))
  good(log.append(leavesOf(0, 500)))
  const first = log.checkpointLater()
  good(log.append(leavesOf(500, 900)))
  expect(good(parseCheckpoint(good(await first))).checkpoint).toMatchObject({ size: 500, root: good(log.root(500)) })
  const second = log.checkpointLater()
  good(log.checkpoint())
  expect(good(parseCheckpoint(good(await second))).checkpoint.size).toBe(900)
  good(log.append(leavesOf(900, 950)))
  const late = log.checkpointLater()
  log.close()
  expect(await late).toBeInstanceOf(Failure)
  const again = good(openLog(folder.path, { origin: ORIGIN }))
  expect([again.size(), good(again.latest())!.checkpoint.size]).toEqual([950, 900])
  again.close()
})
