import { afterAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { parseCheckpoint, verifyCheckpoint } from '../../src/audit/checkpoint.ts'
import { type Log, openLog } from '../../src/audit/log.ts'
import { formatSignatureLine, fromBase64 } from '../../src/audit/note.ts'
import {
  cosignedText,
  newSignerKey,
  signText,
  verifierKey,
  type VerifierKey,
  WITNESS_KEY,
} from '../../src/audit/note-key.ts'
import { consistencyFault } from '../../src/audit/verify.ts'
import { cosigner } from '../../src/audit/witness.ts'
import { bad, freshFolder, good } from './folder.ts'
import { leavesOf } from './reference.ts'

setDefaultTimeout(60_000)

const ORIGIN = 'example.com/weir'
const NAME = 'witness.example/w1'

/** A real witness in this process: it checks signature and consistency, and remembers one checkpoint. */
const witness = (log_keys: () => readonly VerifierKey[]) => {
  const pair = generateKeyPairSync('ed25519')
  const public_key = new Uint8Array(pair.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32))
  const key = verifierKey(NAME, WITNESS_KEY, public_key)
  const seen = { size: 0, root: new Uint8Array(), requests: [] as string[] }
  const answer = async (request: Request): Promise<Response> => {
    const body = await request.text()
    seen.requests.push(body)
    const gap = body.indexOf('\n\n')
    const [old, ...proof] = body.slice(0, gap).split('\n')
    const note = body.slice(gap + 2)
    const checked = good(verifyCheckpoint(note, log_keys())).checkpoint
    const from = Number(old!.replace('old ', ''))
    if (from !== seen.size) return new Response(`${seen.size}\n`, { status: 409 })
    const nodes = proof.map((line) => fromBase64(line)!)
    const claim = { from, to: checked.size, from_root: seen.root, to_root: checked.root, proof: nodes }
    if (from > 0 && consistencyFault(claim)) return new Response('', { status: 422 })
    seen.size = checked.size
    seen.root = new Uint8Array(checked.root)
    return new Response(cosignature(key, pair.privateKey, good(parseCheckpoint(note)).note.text, 1_700_000_000))
  }
  return { key, seen, answer }
}

const cosignature = (key: VerifierKey, secret: KeyObject, text: string, time_s: number): string => {
  const bytes = new Uint8Array(72)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(time_s))
  bytes.set(sign(null, Buffer.from(cosignedText(text, time_s)), secret), 8)
  return formatSignatureLine({ name: key.name, key_id: key.key_id, bytes })
}

type Answer = (request: Request) => Response | Promise<Response>
let answer: Answer = () => new Response('', { status: 500 })
const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: (request) => answer(request) })
afterAll(() => server.stop(true))
const at = (key: VerifierKey, timeout_ms = 2000) => ({
  url: `http://127.0.0.1:${server.port}/add-checkpoint`,
  keys: [key],
  timeout_ms,
})

const grown = (folder: string, size: number): Log => {
  const log = good(openLog(folder, { origin: ORIGIN }))
  good(log.append(leavesOf(0, size)))
  good(log.checkpoint())
  return log
}

describe('witness', () => {
  test('cosigns each checkpoint after checking that the log only grew', async () => {
    using folder = freshFolder()
    const log = grown(folder.path, 10)
    const house = witness(() => log.verifiers())
    answer = house.answer
    const ask = cosigner(at(house.key))
    for (const size of [10, 11, 200]) {
      good(log.append(leavesOf(log.size(), size)))
      good(log.checkpoint())
      const { stored, cosigned_by } = good(await ask(log))
      expect(cosigned_by).toEqual([{ key: house.key, time_s: 1_700_000_000 }])
      expect(good(verifyCheckpoint(stored.note, [...log.verifiers(), house.key])).signed_by).toHaveLength(2)
      expect(good(log.latest())).toEqual(stored)
    }
    expect(house.seen.requests.map((body) => body.split('\n')[0])).toEqual(['old 0', 'old 10', 'old 11'])
    log.close()
  })

  test('that knows another size is asked once more from there', async () => {
    using folder = freshFolder()
    const log = grown(folder.path, 10)
    const house = witness(() => log.verifiers())
    answer = house.answer
    good(await cosigner(at(house.key))(log))
    good(log.append(leavesOf(10, 77)))
    good(log.checkpoint())
    good(await cosigner(at(house.key))(log))
    expect(house.seen.requests.map((body) => body.split('\n')[0])).toEqual(['old 0', 'old 0', 'old 10'])
    expect(house.seen.size).toBe(77)
    log.close()
  })

  const other = generateKeyPairSync('ed25519')
  const refusals: [string, (key: VerifierKey) => Answer, string][] = [
    ['a status', () => () => new Response('', { status: 403 }), 'status 403'],
    ['a size beyond the log', () => () => new Response('99\n', { status: 409 }), 'it has seen size 99'],
    ['another answer of the same size again', () => () => new Response('3\n', { status: 409 }), 'it has seen size 3'],
    ['no lines', () => () => new Response(''), 'none of its signatures verifies'],
    ['something else', () => () => new Response('<html>'), 'not signature lines'],
    ['too much', () => () => new Response('x'.repeat(70_000)), 'more than 65536 bytes'],
    [
      'a signature by another key',
      (key) => () => new Response(cosignature(key, other.privateKey, 'x\n', 1)),
      'none of its signatures',
    ],
    [
      'a redirect',
      () => () => new Response('', { status: 302, headers: { location: '/elsewhere' } }),
      'did not answer',
    ],
    [
      'nothing in time',
      () => () => new Promise<Response>((done) => setTimeout(done, 3000, new Response(''))),
      'did not answer in time',
    ],
  ]
  test.each(refusals)('that answers %s is not believed', async (_, make, says) => {
    using folder = freshFolder()
    const log = grown(folder.path, 10)
    const { key } = witness(() => log.verifiers())
    const before = good(log.latest())
    answer = make(key)
    expect(bad(await cosigner(at(key, 300))(log)).detail.says).toContain(says)
    expect(good(log.latest())).toEqual(before)
    log.close()
  })

  test('a key that is not a witness key does not count as one', async () => {
    using folder = freshFolder()
    const log = grown(folder.path, 10)
    const signer = newSignerKey(NAME)
    answer = async (request) => {
      const note = (await request.text()).split('\n\n').slice(1).join('\n\n')
      return new Response(formatSignatureLine(signText(good(parseCheckpoint(note)).note.text, signer)))
    }
    expect(bad(await cosigner(at(signer.verifier))(log)).detail.says).toContain('none of its signatures verifies')
    log.close()
  })

  test('whose answer comes after the next checkpoint is not stored over it', async () => {
    using folder = freshFolder()
    const log = grown(folder.path, 10)
    const house = witness(() => log.verifiers())
    answer = async (request) => {
      const response = await house.answer(request)
      good(log.append(leavesOf(10, 20)))
      good(log.checkpoint())
      return response
    }
    expect(bad(await cosigner(at(house.key))(log)).code).toBe('conflict')
    expect(good(log.latest())!.checkpoint.size).toBe(20)
    log.close()
  })
})
