import { usd } from '../base/money.ts'
import { type CheckedNote, Difference, type PublicKey, readNote, readPublicKey, signersOf } from './check-note.ts'
import { hashLeaf, sameBytes } from './hash.ts'
import { type CheckedLine, checkInvoice } from './invoice-check.ts'
import { bytesOf, iso, type Json, listOf, numberOf, objectOf, parsed } from './proof-json.ts'
import { consistencyFault, inclusionFault } from './verify.ts'

/** What a proof is held against: keys known from elsewhere, a checkpoint kept from before, and a proof between the two. */
export type Trust = {
  readonly keys: readonly PublicKey[]
  readonly saved: string | undefined
  readonly consistency: string | undefined
}

/** What a proof proves, in sentences. */
export type Proved = { readonly says: readonly string[] }

/** Checks a bundle or a consistency proof, as the text of its file. Throws a {@link Difference} that names what is wrong. */
export const checkProof = (text: string, trust: Trust): Proved => {
  const proof = objectOf(parsed(text, 'the file'), 'the file')
  if (FORMATS.includes(String(proof['format']))) return checkBundle(proof, trust)
  if (typeof proof['from_root'] === 'string') return checkConsistencyFile(proof, trust)
  throw new Difference(
    `the file is neither a proof ("format": ${FORMATS.map((format) => `"${format}"`).join(' or ')}) nor a consistency proof`,
  )
}

/** As `audit/bundle.ts` has them; written apart from it on purpose. */
const FORMATS = ['weir-proof/1', 'weir-proof/2']

const checkBundle = (bundle: Json, trust: Trust): Proved => {
  const { note, says } = trustedNote(bundle, trust)
  const nodes = listOf(bundle['nodes'], 'nodes').map((node, nth) => bytesOf(node, `nodes[${nth}]`))
  const lines = listOf(bundle['lines'], 'lines')
  if (lines.length === 0 && bundle['kind'] === 'call') throw new Difference('the bundle has no line')
  const leaves = lines.map((line, nth) => checkLine(objectOf(line, `line ${nth}`), nth, nodes, note))
  const seen = new Set<number>()
  for (const [nth, { index }] of leaves.entries()) {
    if (seen.has(index)) throw new Difference(`line ${nth} proves leaf ${index}, as a line before it does`)
    seen.add(index)
  }
  if (bundle['kind'] === 'invoice')
    return { says: [...says, checkInvoice(objectOf(bundle['invoice'], 'invoice'), leaves)] }
  return { says: [...says, ...leaves.map(({ leaf, index }) => `leaf ${index}: ${about(leaf)}`)] }
}

const checkLine = (line: Json, nth: number, nodes: readonly Uint8Array[], note: CheckedNote): CheckedLine => {
  const bytes = bytesOf(line['leaf'], `line ${nth}: leaf`)
  const name = nameOf(bytes, nth)
  const index = numberOf(line['index'], `${name}: index`)
  const proof = listOf(line['path'], `${name}: path`).map((number) => {
    const node = nodes[numberOf(number, `${name}: path`)]
    if (!node) throw new Difference(`${name} needs node ${String(number)}, and there are ${nodes.length}`)
    return node
  })
  const fault = inclusionFault({ index, size: note.size, leaf_hash: hashLeaf(bytes), root: note.root, proof })
  if (fault) throw new Difference(`${name} is not in the log: ${fault}`)
  const leaf = objectOf(parsed(new TextDecoder().decode(bytes), name), name)
  if (leaf['log_index'] !== index)
    throw new Difference(`${name} says that it is leaf ${String(leaf['log_index'])}, not ${index}`)
  const salt = line['salt']
  if (typeof salt === 'string' && hexHash(salt) !== leaf['salt_sha256'])
    throw new Difference(`${name}: the salt is not that of the row`)
  return { index, leaf }
}

const hexHash = (hex: string): string =>
  /^([0-9a-f]{2})*$/.test(hex) ? new Bun.CryptoHasher('sha256').update(Buffer.from(hex, 'hex')).digest('hex') : ''

const checkConsistencyFile = (proof: Json, trust: Trust): Proved => {
  const { from, to, from_root, to_root } = checkConsistency(proof)
  if (typeof proof['checkpoint'] === 'string') {
    const { note, says } = trustedNote(proof, { ...trust, saved: undefined })
    if (note.size !== to || !sameBytes(note.root, to_root))
      throw new Difference(`the checkpoint is not of the root at size ${to}`)
    if (trust.saved !== undefined) mustBe(readNote(trust.saved, 'the kept checkpoint'), from, from_root)
    return { says: [...says, `the log of ${to} leaves begins with the log of ${from}`] }
  }
  if (trust.saved === undefined)
    throw new Difference('nothing signs this proof: it needs --checkpoint with one that was kept')
  const kept = readNote(trust.saved, 'the kept checkpoint')
  if (kept.size === to) mustBe(kept, to, to_root)
  else mustBe(kept, from, from_root)
  return { says: [`the log of ${to} leaves begins with the log of ${from}; one of them is the kept checkpoint`] }
}

const mustBe = (note: CheckedNote, size: number, root: Uint8Array): void => {
  if (note.size !== size)
    throw new Difference(`the kept checkpoint is of size ${note.size}, and the proof of size ${size}`)
  if (!sameBytes(note.root, root))
    throw new Difference(`the log has another root at size ${size} than the kept checkpoint: history was rewritten`)
}

/** The checkpoint of a proof, once it is known whose it is. */
const trustedNote = (proof: Json, trust: Trust): { note: CheckedNote; says: string[] } => {
  if (typeof proof['checkpoint'] !== 'string') throw new Difference('the file has no checkpoint')
  const note = readNote(proof['checkpoint'], 'the checkpoint')
  const own = listOf(proof['public_keys'] ?? [], 'public_keys').map((key) => readPublicKey(String(key)))
  const keys = trust.keys.length > 0 ? trust.keys : own
  const signers = signersOf(note, keys, 'the checkpoint')
  const says = [`checkpoint of ${note.origin}, size ${note.size}, signed by ${signers.join(' and ')}`]
  if (trust.saved !== undefined) says.push(holdAgainst(note, proof, trust))
  else if (trust.keys.length === 0)
    says.push('the key is the one in the file: compare it with a key or a checkpoint that you got elsewhere')
  return { note, says }
}

const holdAgainst = (note: CheckedNote, proof: Json, { saved, keys, consistency }: Trust): string => {
  const kept = readNote(saved!, 'the kept checkpoint')
  if (keys.length > 0) signersOf(kept, keys, 'the kept checkpoint')
  if (kept.origin !== note.origin)
    throw new Difference(`the kept checkpoint is of "${kept.origin}", the proof of "${note.origin}"`)
  if (kept.size === note.size) {
    mustBe(kept, note.size, note.root)
    return 'it is the kept checkpoint'
  }
  const [older, newer] = kept.size < note.size ? [kept, note] : [note, kept]
  if (older.size === 0) return 'the kept checkpoint is of the empty log'
  const between = consistency === undefined ? proof['consistency'] : parsed(consistency, 'the consistency proof')
  if (between === undefined)
    throw new Difference(
      `the kept checkpoint has size ${kept.size}, the proof ${note.size}: it takes the answer of /audit/consistency?from=${older.size}&to=${newer.size}, given with --consistency`,
    )
  const { from, to, from_root, to_root } = checkConsistency(objectOf(between, 'the consistency proof'))
  mustBe(older, from, from_root)
  mustBe(newer, to, to_root)
  return `it is consistent with the kept checkpoint of size ${kept.size}`
}

const checkConsistency = (json: Json) => {
  const claim = {
    from: numberOf(json['from'], 'from'),
    to: numberOf(json['to'], 'to'),
    from_root: bytesOf(json['from_root'], 'from_root'),
    to_root: bytesOf(json['to_root'], 'to_root'),
    proof: listOf(json['proof'], 'proof').map((node, nth) => bytesOf(node, `proof[${nth}]`)),
  }
  const fault = consistencyFault(claim)
  if (fault)
    throw new Difference(`the log of ${claim.to} leaves is no continuation of the log of ${claim.from}: ${fault}`)
  return claim
}

const nameOf = (leaf: Uint8Array, nth: number): string => {
  const id = /"id":"([^"]{1,64})"/.exec(new TextDecoder().decode(leaf))?.[1]
  return id === undefined ? `line ${nth}` : `line ${nth} (${id})`
}

const about = (leaf: Json): string =>
  leaf['type'] === 'call'
    ? `call ${String(leaf['id'])} of ${String(leaf['tenant'])}, ${iso(Number(leaf['at_ms']))}, ${String(leaf['model'])}, ${String(leaf['prompt_tokens'])} + ${String(leaf['completion_tokens'])} tokens, ${charged(leaf['charge_nanodollars'])}`
    : `a leaf of type ${String(leaf['type'])}`

const charged = (nanodollars: unknown): string => {
  if (nanodollars === null) return 'without a price'
  const text = String(nanodollars)
  return /^-?\d{1,30}$/.test(text) ? `${usd(BigInt(text))} USD` : `${text} nanodollars`
}
