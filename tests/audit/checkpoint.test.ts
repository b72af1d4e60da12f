import { describe, expect, test } from 'bun:test'
import { generateKeyPairSync, sign } from 'node:crypto'
import { readFileSync, statSync, chmodSync, writeFileSync, rmSync } from 'node:fs'
import {
  addSignatures,
  checkpointText,
  parseCheckpoint,
  signCheckpoint,
  verifyCheckpoint,
} from '../../src/audit/checkpoint.ts'
import { CheckpointStore } from '../../src/audit/checkpoint-store.ts'
import { sha256 } from '../../src/audit/hash.ts'
import { formatNote, parseNote } from '../../src/audit/note.ts'
import {
  cosignedText,
  formatSignerKey,
  formatVerifierKey,
  newSignerKey,
  parseSignerKey,
  parseVerifierKey,
  signerKey,
  verifierKey,
  verifyNote,
  WITNESS_KEY,
} from '../../src/audit/note-key.ts'
import { openSigningKeys, retireSigningKey, rotateSigningKey } from '../../src/audit/signing-keys.ts'
import { bad, freshFolder, good } from './folder.ts'

const ORIGIN = 'example.com/weir'
const KEY = signerKey(ORIGIN, new Uint8Array(32).fill(1))
const OTHER = signerKey(ORIGIN, new Uint8Array(32).fill(2))
const ROOT = sha256(new Uint8Array(0))
const CHECKPOINT = { origin: ORIGIN, size: 5, root: ROOT }
const NOTE = signCheckpoint(CHECKPOINT, [KEY])

/** A cosignature as a witness makes it, by the words of C2SP tlog-cosignature. */
const cosign = (name: string, text: string, time_s: number) => {
  const pair = generateKeyPairSync('ed25519')
  const key = verifierKey(
    name,
    WITNESS_KEY,
    new Uint8Array(pair.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32)),
  )
  const bytes = new Uint8Array(72)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(time_s))
  bytes.set(sign(null, Buffer.from(`cosignature/v1\ntime ${time_s}\n${text}`), pair.privateKey), 8)
  return { key, signature: { name, key_id: key.key_id, bytes } }
}

describe('keys', () => {
  test('the key id is the start of SHA-256(name, newline, type, key)', () => {
    const public_key = KEY.verifier.public_key
    const input = new Uint8Array([...new TextEncoder().encode(`${ORIGIN}\n`), 1, ...public_key])
    const id = sha256(input).slice(0, 4).toHex()
    expect(formatVerifierKey(KEY.verifier)).toBe(`${ORIGIN}+${id}+${new Uint8Array([1, ...public_key]).toBase64()}`)
  })
  test('the public key of a seed is that of RFC 8032 §7.1, test 1', () => {
    const seed = Uint8Array.fromHex('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60')
    const want = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a'
    expect(signerKey('a', seed).verifier.public_key.toHex()).toBe(want)
  })
  test('a published note verifies under its published key', () => {
    const key = good(parseVerifierKey('PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW'))
    const text =
      "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n" +
      '\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n'
    const note = good(parseNote(text))
    expect(good(verifyNote(note, [key]))).toEqual([{ key }])
  })
  test('texts of keys come back', () => {
    expect(good(parseVerifierKey(formatVerifierKey(KEY.verifier)))).toEqual(KEY.verifier)
    expect(good(parseSignerKey(formatSignerKey(KEY)))).toEqual(KEY)
  })
  test.each([
    ['', 'NAME+ID'],
    ['a', 'NAME+ID'],
    ['a+00000000', 'NAME+ID'],
    [formatVerifierKey(KEY.verifier).replace(/\+.{8}\+/, '+00000000+'), 'instead of'],
    [formatVerifierKey(KEY.verifier).replace('weir', 'wier'), 'instead of'],
    [formatVerifierKey(verifierKey('a', 2, ROOT)), 'unknown type'],
    ['a+00000000+AAAA', 'one byte of type'],
    ['a b+00000000+AAAA', 'NAME+ID'],
  ])('verifier key %p is refused', (text, says) => expect(bad(parseVerifierKey(text)).detail.says).toContain(says))
  test('a private key is refused without being repeated', () => {
    const text = formatSignerKey(KEY).replace(/\+[0-9a-f]{8}\+/, '+00000000+')
    const says = bad(parseSignerKey(text)).detail.says!
    expect(says).toContain('another key')
    expect(says).not.toContain(text.split('+').at(-1)!)
    expect(bad(parseSignerKey(formatVerifierKey(KEY.verifier)))).toBeDefined()
  })
})

describe('checkpoints', () => {
  test('are origin, size and root, signed', () => {
    expect(NOTE.startsWith(`${ORIGIN}\n5\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— ${ORIGIN} `)).toBe(true)
    const { checkpoint, signed_by } = good(verifyCheckpoint(NOTE, [KEY.verifier]))
    expect(checkpoint).toEqual(CHECKPOINT)
    expect(signed_by).toEqual([{ key: KEY.verifier }])
    expect(formatNote(good(parseNote(NOTE)))).toBe(NOTE)
  })

  test('the example of the checkpoint format is read', () => {
    const text =
      'example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n' +
      '— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n'
    expect(good(parseCheckpoint(text)).checkpoint.size).toBe(20852163)
  })

  test('several signatures: all known ones must verify, unknown ones are ignored', () => {
    const both = signCheckpoint(CHECKPOINT, [KEY, OTHER])
    expect(good(verifyCheckpoint(both, [KEY.verifier])).signed_by).toHaveLength(1)
    expect(good(verifyCheckpoint(both, [OTHER.verifier, KEY.verifier])).signed_by.map(({ key }) => key)).toEqual([
      KEY.verifier,
      OTHER.verifier,
    ])
    expect(bad(verifyCheckpoint(both, [newSignerKey(ORIGIN).verifier])).detail.says).toBe('no known key has signed')
    const parsed = good(parseNote(both))
    const broken = {
      ...parsed.signatures[1]!,
      bytes: parsed.signatures[1]!.bytes.with(0, parsed.signatures[1]!.bytes[0]! ^ 1),
    }
    const note = formatNote({ text: parsed.text, signatures: [parsed.signatures[0]!, broken] })
    expect(bad(verifyCheckpoint(note, [KEY.verifier, OTHER.verifier])).detail.says).toContain('does not verify')
    expect(good(verifyCheckpoint(note, [KEY.verifier])).signed_by).toHaveLength(1)
  })

  test('a cosignature verifies with its time, and with no other', () => {
    const text = checkpointText(CHECKPOINT)
    const { key, signature } = cosign('witness.example.com/w1', text, 1_679_315_147)
    const note = addSignatures(good(parseNote(NOTE)), [signature, signature])
    expect(note.match(/— /g)).toHaveLength(2)
    expect(good(verifyCheckpoint(note, [key])).signed_by).toEqual([{ key, time_s: 1_679_315_147 }])
    const late = addSignatures(good(parseNote(NOTE)), [{ ...signature, bytes: signature.bytes.with(7, 1) }])
    expect(bad(verifyCheckpoint(late, [key])).detail.says).toContain('does not verify')
    expect(cosignedText(text, 7)).toBe(`cosignature/v1\ntime 7\n${text}`)
  })

  test('any one bit of the signed text or the signature is refused', () => {
    const raw = Buffer.from(NOTE)
    let accepted = 0
    for (let bit = 0; bit < raw.byteLength * 8; bit++) {
      const changed = Buffer.from(raw)
      changed[bit >> 3]! ^= 1 << (bit & 7)
      const note = changed.toString('utf8')
      const seen = verifyCheckpoint(note, [KEY.verifier])
      if (!('code' in seen)) accepted++
    }
    expect(accepted).toBe(0)
  })

  const root = ROOT.toBase64()
  const signature = NOTE.slice(NOTE.indexOf('\n\n') + 2)
  test.each([
    ['no signature', `${ORIGIN}\n5\n${root}\n`],
    ['no empty line', `${ORIGIN}\n5\n${root}\n${signature}`],
    ['leading zero', `${ORIGIN}\n05\n${root}\n\n${signature}`],
    ['plus sign', `${ORIGIN}\n+5\n${root}\n\n${signature}`],
    ['size of 2^53', `${ORIGIN}\n9007199254740992\n${root}\n\n${signature}`],
    ['negative size', `${ORIGIN}\n-1\n${root}\n\n${signature}`],
    ['short root', `${ORIGIN}\n5\nAAAA\n\n${signature}`],
    ['root without padding', `${ORIGIN}\n5\n${root.slice(0, -1)}\n\n${signature}`],
    ['root with other spare bits', `${ORIGIN}\n5\n${root.slice(0, -2)}V=\n\n${signature}`],
    ['no origin', `\n5\n${root}\n\n${signature}`],
    ['two lines', `${ORIGIN}\n5\n\n${signature}`],
    ['empty extension', `${ORIGIN}\n5\n${root}\n\n\n${signature}`],
    ['control character', `${ORIGIN}\t\n5\n${root}\n\n${signature}`],
    ['carriage return', NOTE.replaceAll('\n', '\r\n')],
    ['no last newline', NOTE.slice(0, -1)],
    ['a hyphen for the dash', NOTE.replace('—', '-')],
    ['two spaces', NOTE.replace('— ', '—  ')],
    ['too long', `${ORIGIN}\n5\n${root}\n${'x'.repeat(200_000)}\n\n${signature}`],
    ['too many signatures', `${ORIGIN}\n5\n${root}\n\n${signature.repeat(33)}`],
    ['lone surrogate', NOTE.replace('example', 'ex\ud800mple')],
  ])('%s is refused', (_, note) => expect(bad(parseCheckpoint(note)).detail.says).toBeString())

  test('extension lines and 16 signatures are accepted', () => {
    const note = `${ORIGIN}\n0\n${root}\nmore\n\n${signature.repeat(16)}`
    expect(good(parseCheckpoint(note)).note.signatures).toHaveLength(16)
  })
})

describe('signing key file', () => {
  test('is made once, mode 0600, and read again', () => {
    using folder = freshFolder()
    const file = `${folder.path}/key`
    const made = good(openSigningKeys(file, ORIGIN))
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(good(openSigningKeys(file, ORIGIN))).toEqual(made)
    expect(readFileSync(`${file}.pub`, 'utf8')).toBe(`${formatVerifierKey(made.signers[0]!.verifier)}\n`)
  })
  test('rotation: both keys sign, then the new one; all verifier keys stay', () => {
    using folder = freshFolder()
    const file = `${folder.path}/key`
    const first = good(openSigningKeys(file, ORIGIN)).signers[0]!
    const turning = good(rotateSigningKey(file, ORIGIN))
    expect(turning.signers).toHaveLength(2)
    expect(turning.signers[1]).toEqual(first)
    expect(bad(rotateSigningKey(file, ORIGIN)).detail.says).toContain('has not signed')
    const after = good(retireSigningKey(file, ORIGIN))
    expect(after.signers).toEqual([turning.signers[0]!])
    expect(after.verifiers).toEqual([first.verifier, turning.signers[0]!.verifier])
    expect(good(retireSigningKey(file, ORIGIN))).toEqual(after)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    rmSync(`${file}.pub`)
    expect(good(openSigningKeys(file, ORIGIN)).verifiers).toEqual([after.signers[0]!.verifier])
  })
  test('what is unsafe or not ours is refused', () => {
    using folder = freshFolder()
    const file = `${folder.path}/key`
    good(openSigningKeys(file, ORIGIN))
    expect(bad(openSigningKeys(file, 'other')).detail.says).toContain('the log is "other"')
    expect(bad(openSigningKeys(file, 'a b')).detail.says).toContain('cannot name a key')
    chmodSync(file, 0o640)
    expect(bad(openSigningKeys(file, ORIGIN)).detail.says).toContain('0600')
    chmodSync(file, 0o600)
    writeFileSync(file, '')
    expect(bad(openSigningKeys(file, ORIGIN)).detail.says).toContain('0 keys')
    expect(bad(openSigningKeys(`${folder.path}/no/key`, ORIGIN)).code).toBe('internal')
    expect(bad(rotateSigningKey(`${folder.path}/missing`, ORIGIN)).code).toBe('internal')
  })
})

describe('checkpoint store', () => {
  const note = (size: number, ...keys: (typeof KEY)[]) => signCheckpoint({ origin: ORIGIN, size, root: ROOT }, keys)
  test('finds by size and keeps the fuller of two', () => {
    using folder = freshFolder()
    const store = new CheckpointStore(folder.path)
    expect(store.latest()).toBeUndefined()
    expect(store.covering(0)).toBeUndefined()
    expect(store.atMost(9)).toBeUndefined()
    for (const size of [3, 7, 12]) store.append(note(size, KEY))
    store.append(note(12, KEY, OTHER))
    store.close()
    const again = new CheckpointStore(folder.path)
    expect(again.count).toBe(4)
    expect(again.latest()!.note).toBe(note(12, KEY, OTHER))
    const found = (size: number) => [again.atMost(size)?.checkpoint.size, again.covering(size)?.checkpoint.size]
    expect([0, 2, 3, 6, 7, 11, 12, 13].map(found)).toEqual([
      [undefined, 3],
      [undefined, 3],
      [3, 7],
      [3, 7],
      [7, 12],
      [7, 12],
      [12, undefined],
      [12, undefined],
    ])
    expect(again.covering(9)!.note).toBe(note(12, KEY, OTHER))
    again.close()
  })
  test('a tail that was not written is cut, other damage is reported', () => {
    using folder = freshFolder()
    const store = new CheckpointStore(folder.path)
    store.append(note(3, KEY))
    store.append(note(7, KEY))
    store.close()
    const data = `${folder.path}/checkpoints.data`
    const raw = readFileSync(data)
    writeFileSync(data, raw.fill(0, raw.byteLength - 20))
    const cut = new CheckpointStore(folder.path)
    expect(cut.latest()!.checkpoint.size).toBe(3)
    cut.close()
    writeFileSync(data, readFileSync(data).fill('x', 0, 90))
    const damaged = new CheckpointStore(folder.path)
    expect(() => damaged.latest()).toThrow('checkpoint 0 is damaged')
    damaged.close()
  })
})
