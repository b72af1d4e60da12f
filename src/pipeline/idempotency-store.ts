import { closeSync, lstatSync, mkdirSync, openSync, readFileSync, readlinkSync, rmSync, writeSync } from 'node:fs'
import { appendFile, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Answers to calls with an Idempotency-Key, one file each, shared by all workers of a house and kept over restarts:
 *
 *     claims/NAME        a symbolic link that leads nowhere: its text is `OWNER FINGERPRINT CALL_ID`. A call runs.
 *     parts/NAME.OWNER   the bytes of its answer so far
 *     answers/NN/NAME    the answer: its bytes, a JSON of the rest, that JSON's length (u32, little-endian), "WEIR".
 *                        Or the claim's link, moved here: the call has ended and its answer is not kept.
 *
 * A link is made whole or not at all and only if there is none, in one step, so of two claims one wins; a file takes its
 * place in one step too. Whoever dies leaves a claim whose owner is gone; the control process, alone, takes those away
 * (`idempotency-sweep.ts`). What is here survives a killed process; a loss of power may take the newest answers.
 */
export type Shelf = {
  readonly folder: string
  /** Who claims here: `w3-17`, worker and incarnation. */
  readonly owner: string
}

/** An answer as its client got it, pings left out. */
export type KeptAnswer = {
  readonly fingerprint: string
  readonly call_id: string
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** What there is under a name. `mine`: nothing was, and the caller has claimed it; {@link Keeping} must follow. */
export type Found = KeptAnswer | 'mine' | 'in_progress' | 'other_request' | 'not_kept'

/** Makes the folders of a shelf. */
export const openShelf = (folder: string, owner: string): Shelf => {
  for (const part of ['claims', 'parts', 'answers']) mkdirSync(`${folder}/${part}`, { recursive: true, mode: 0o700 })
  return { folder, owner }
}

/** The paths of a name (64 hex digits) on a shelf. */
export const pathsOf = ({ folder, owner }: Shelf, name: string) => ({
  claim: `${folder}/claims/${name}`,
  part: `${folder}/parts/${name}.${owner}`,
  answer: `${folder}/answers/${name.slice(0, 2)}/${name}`,
})

/**
 * Looks a name up, and claims it if there is nothing. `fingerprint` is the request's: with another one under the same
 * name it is `other_request`. Throws what the file system says, but for what it is asked for.
 */
export const findOrClaim = async (shelf: Shelf, name: string, fingerprint: string, call_id: string): Promise<Found> => {
  const { claim, answer } = pathsOf(shelf, name)
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const kept = readKept(answer)
    if (kept !== undefined) return kept.fingerprint === fingerprint ? kept.found : 'other_request'
    if (await makeLink(`${shelf.owner} ${fingerprint} ${call_id}`, claim)) {
      // Between the look and the claim another call may have come to its end.
      if (readKept(answer) === undefined) return 'mine'
      rmSync(claim)
      continue
    }
    const claimed = orAbsent(() => readlinkSync(claim))
    if (claimed !== undefined) return parseClaim(claimed).fingerprint === fingerprint ? 'in_progress' : 'other_request'
  }
  return 'in_progress'
}

/** A claim can go and come between two looks, but hardly so often. */
const TRIES_MAX = 8

/** The text of a claim's link. */
export const parseClaim = (text: string): { owner: string; fingerprint: string; call_id: string } => {
  const [owner = '', fingerprint = '', call_id = ''] = text.split(' ')
  return { owner, fingerprint, call_id }
}

type Kept = { readonly fingerprint: string; readonly found: KeptAnswer | 'not_kept' }

// Asked with lstat first: for nearly every call there is nothing, and an error costs more than the look.
const readKept = (path: string): Kept | undefined => {
  const there = lstatSync(path, { throwIfNoEntry: false })
  if (there === undefined) return undefined
  if (there.isSymbolicLink()) {
    const link = orAbsent(() => readlinkSync(path))
    return link === undefined ? undefined : { fingerprint: parseClaim(link).fingerprint, found: 'not_kept' }
  }
  const found = read(path)
  return found && { fingerprint: found.fingerprint, found }
}

const MAGIC = Buffer.from('WEIR')
const TAIL_BYTES = 4 + MAGIC.length

// A file that a loss of power has torn counts as none; the next answer takes its place.
const read = (path: string): KeptAnswer | undefined => {
  const bytes = orAbsent(() => readFileSync(path))
  if (bytes === undefined || bytes.length < TAIL_BYTES || !bytes.subarray(-MAGIC.length).equals(MAGIC)) return undefined
  const about_end = bytes.length - TAIL_BYTES
  const about_start = about_end - bytes.readUInt32LE(about_end)
  if (about_start < 0) return undefined
  const about: Omit<KeptAnswer, 'body'> = JSON.parse(bytes.toString('utf8', about_start, about_end))
  return { ...about, body: bytes.subarray(0, about_start) }
}

const makeLink = async (text: string, path: string): Promise<boolean> => {
  try {
    await symlink(text, path)
    return true
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') return false
    throw cause
  }
}

const orAbsent = <T>(look: () => T): T | undefined => {
  try {
    return look()
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return undefined
    throw cause
  }
}

const codeOf = (cause: unknown): string => (cause as { code?: string }).code ?? ''

/** What takes an answer on its way to the client. Exactly one of `complete` and `release` takes effect: the first. */
export type AnswerKeeper = {
  /** Why the answer could not be kept; undefined if it could, or was not meant to be. */
  readonly trouble: unknown
  /** Takes the next bytes of the answer. Never throws: what cannot be kept is found out when it is complete. */
  add(bytes: Uint8Array): void
  /** The answer is whole: from now on a repeat gets it, or learns that it was not kept. */
  complete(status: number, headers: Readonly<Record<string, string>>): void | Promise<void>
  /** Nothing is kept, and the next call under the name runs. Harmless after `complete`. */
  release(): void
}

/** Bytes that are collected before they are written. */
const WRITE_BYTES = 64 * 1024

/** The answer to a claimed call, on its way to the shelf. */
export class Keeping implements AnswerKeeper {
  readonly #shelf: Shelf
  readonly #name: string
  readonly #about: Pick<KeptAnswer, 'fingerprint' | 'call_id'>
  readonly #bytes_max: number
  #pieces: Uint8Array[] = []
  #waiting_bytes = 0
  #bytes = 0
  #file: number | undefined
  #trouble: unknown
  #open = true

  constructor(shelf: Shelf, name: string, about: Pick<KeptAnswer, 'fingerprint' | 'call_id'>, bytes_max: number) {
    this.#shelf = shelf
    this.#name = name
    this.#about = about
    this.#bytes_max = bytes_max
  }

  get trouble(): unknown {
    return this.#trouble
  }

  add(bytes: Uint8Array): void {
    this.#bytes += bytes.length
    if (!this.#open || this.#trouble !== undefined || this.#bytes > this.#bytes_max) return
    this.#pieces.push(bytes)
    this.#waiting_bytes += bytes.length
    if (this.#waiting_bytes >= WRITE_BYTES) this.#trySync(() => this.#write())
  }

  // Making a file can take a disk a millisecond, which no other call is to wait for.
  async complete(status: number, headers: Readonly<Record<string, string>>): Promise<void> {
    if (!this.#open) return
    this.#open = false
    const { claim, part, answer } = pathsOf(this.#shelf, this.#name)
    const fits = this.#bytes <= this.#bytes_max
    if (fits && this.#trouble === undefined) await this.#try(() => this.#keep(part, answer, status, headers))
    if (!fits || this.#trouble !== undefined) await this.#try(() => place(claim, answer))
    this.#clear()
    await this.#try(() => rm(claim, { force: true }))
  }

  release(): void {
    if (!this.#open) return
    this.#open = false
    this.#clear()
    // At once: the client may repeat its call as soon as it hears of the failure.
    this.#trySync(() => rmSync(pathsOf(this.#shelf, this.#name).claim, { force: true }))
  }

  async #keep(part: string, answer: string, status: number, headers: Readonly<Record<string, string>>): Promise<void> {
    const about = Buffer.from(JSON.stringify({ ...this.#about, status, headers }))
    const tail = Buffer.alloc(4)
    tail.writeUInt32LE(about.length)
    const rest = Buffer.concat([...this.#pieces, about, tail, MAGIC])
    if (this.#file === undefined) await writeFile(part, rest, { mode: 0o600 })
    else await appendFile(part, rest)
    await place(part, answer)
  }

  /** Lets go of what was collected; a part that is not an answer by now never will be. */
  #clear(): void {
    this.#pieces = []
    if (this.#file === undefined) return
    const file = this.#file
    this.#file = undefined
    this.#trySync(() => {
      closeSync(file)
      rmSync(pathsOf(this.#shelf, this.#name).part, { force: true })
    })
  }

  #write(): void {
    this.#file ??= openSync(pathsOf(this.#shelf, this.#name).part, 'w', 0o600)
    for (let left = Buffer.concat(this.#pieces); left.length > 0;) left = left.subarray(writeSync(this.#file, left))
    this.#pieces = []
    this.#waiting_bytes = 0
  }

  async #try(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (cause) {
      this.#trouble ??= cause
    }
  }

  #trySync(work: () => void): void {
    try {
      work()
    } catch (cause) {
      this.#trouble ??= cause
    }
  }
}

/** Moves a file or link to its place; the folder may be the first of its name. */
const place = async (from: string, to: string): Promise<void> => {
  try {
    await rename(from, to)
  } catch (cause) {
    if (codeOf(cause) !== 'ENOENT') throw cause
    await mkdir(dirname(to), { recursive: true, mode: 0o700 })
    await rename(from, to)
  }
}
