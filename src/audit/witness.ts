import { Failure } from '../base/failure.ts'
import { parseCheckpoint } from './checkpoint.ts'
import type { StoredCheckpoint } from './checkpoint-store.ts'
import type { Log } from './log.ts'
import { type NoteSignature, parseSignatureLine } from './note.ts'
import { type Verified, type VerifierKey, verifySignature, WITNESS_KEY } from './note-key.ts'

/** A witness: who countersigns checkpoints after checking that the log only grew (C2SP tlog-witness). */
export type Witness = {
  /** The whole address that takes checkpoints, usually ending in `/add-checkpoint`. */
  readonly url: string
  /** Its public keys, of type `WITNESS_KEY`. */
  readonly keys: readonly VerifierKey[]
  /** For each request, from connecting to the last byte. */
  readonly timeout_ms: number
}

/** What a witness said of a checkpoint: the checkpoint with its signatures, as stored, and who cosigned when. */
export type Cosigned = { readonly stored: StoredCheckpoint; readonly cosigned_by: readonly Verified[] }

/**
 * A function that has the newest checkpoint of a log cosigned and stored with the signatures. It never waits longer than
 * two time limits: where the witness remembers another size than was assumed it says so, and is asked once more. What
 * the witness answered but did not verify is not stored.
 */
export const cosigner = (witness: Witness): ((log: Log) => Promise<Cosigned | Failure>) => {
  let known_size = 0
  return async (log) => {
    const latest = log.latest()
    if (latest instanceof Failure) return latest
    if (!latest) return new Failure('not_found', { says: 'The log has no checkpoint yet.' })
    let answer = await submit(witness, log, latest, Math.min(known_size, latest.checkpoint.size))
    if (typeof answer === 'number' && answer <= latest.checkpoint.size)
      answer = await submit(witness, log, latest, answer)
    if (answer instanceof Failure) return answer
    if (typeof answer === 'number')
      return refused(`it has seen size ${answer}, and the log signed ${latest.checkpoint.size}`)
    const parsed = parseCheckpoint(latest.note)
    if (parsed instanceof Failure) return parsed
    const good = verified(parsed.note.text, answer, witness.keys)
    if (good.length === 0) return refused('none of its signatures verifies')
    known_size = latest.checkpoint.size
    const stored = log.keepSignatures(
      parsed.note.text,
      good.map(({ signature }) => signature),
    )
    return stored instanceof Failure ? stored : { stored, cosigned_by: good.map(({ by }) => by) }
  }
}

/** The body of a request to a witness: the size it knows, the consistency proof from there, and the checkpoint. */
export const witnessRequest = (old_size: number, proof: readonly Uint8Array[], note: string): string =>
  `old ${old_size}\n${proof.map((node) => `${node.toBase64()}\n`).join('')}\n${note}`

// The answer is either signature lines or the size that the witness has.
const submit = async (
  { url, timeout_ms }: Witness,
  log: Log,
  { note, checkpoint }: StoredCheckpoint,
  old_size: number,
): Promise<NoteSignature[] | number | Failure> => {
  const claim = old_size === 0 ? undefined : log.consistency(old_size, checkpoint.size)
  if (claim instanceof Failure) return claim
  try {
    const response = await fetch(url, {
      method: 'POST',
      body: witnessRequest(old_size, claim?.proof ?? [], note),
      redirect: 'error',
      signal: AbortSignal.timeout(timeout_ms),
    })
    const text = await shortText(response)
    if (text === undefined) return refused(`its answer has more than ${ANSWER_BYTES_MAX} bytes`)
    if (response.status === 409 && /^(0|[1-9][0-9]{0,15})\n?$/.test(text)) return Number(text)
    if (response.status !== 200) return refused(`it answered with status ${response.status}`)
    return parseLines(text)
  } catch (cause) {
    return new Failure('engine_unreachable', { says: `The witness ${url} did not answer in time.`, cause })
  }
}

const parseLines = (text: string): NoteSignature[] | Failure => {
  const signatures: NoteSignature[] = []
  for (const line of text.split('\n').slice(0, SIGNATURES_MAX)) {
    if (line === '') continue
    const signature = parseSignatureLine(line)
    if (signature instanceof Failure) return refused('its answer is not signature lines')
    signatures.push(signature)
  }
  return signatures
}

const verified = (text: string, signatures: readonly NoteSignature[], keys: readonly VerifierKey[]) =>
  signatures.flatMap((signature) => {
    const key = keys.find(({ name, key_id }) => name === signature.name && key_id === signature.key_id)
    const by = key?.type === WITNESS_KEY ? verifySignature(text, signature, key) : undefined
    return by ? [{ signature, by }] : []
  })

const ANSWER_BYTES_MAX = 64 * 1024
const SIGNATURES_MAX = 16

const shortText = async (response: Response): Promise<string | undefined> => {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > ANSWER_BYTES_MAX) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

const refused = (why: string): Failure => new Failure('engine_failed', { says: `The witness did not cosign: ${why}.` })
