import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Failure } from '../base/failure.ts'
import { newId } from '../base/ids.ts'

/** Who may be asked, and for what: each the one writer of what would change. */
const ADDRESSEE = { rotate_key: 'auditor', erase_salts: 'accountant' } as const
type Kind = keyof typeof ADDRESSEE
export type Addressee = (typeof ADDRESSEE)[Kind]

/**
 * How another process of the house asks the accountant or the auditor for a change: a letter is a JSON
 * file in a folder that only the house can enter, and so is its answer. A letter survives an addressee that dies before
 * it reads it; one that dies between the change and its answer leaves the asker without an answer, never with a second
 * change, since a letter is taken out of the folder before it is acted on.
 */
export type Letter<Wanted extends Kind = Kind> = Extract<
  | { readonly kind: 'rotate_key' }
  /** Cuts the link between a tenant's rows and the bodies of its calls, for ever. */
  | { readonly kind: 'erase_salts'; readonly tenant: string },
  { readonly kind: Wanted }
>
/** The letters that an addressee gets. */
type LetterTo<Name extends Addressee> = {
  [Wanted in Kind]: (typeof ADDRESSEE)[Wanted] extends Name ? Letter<Wanted> : never
}[Kind]

/** What the addressee says: done, or why not, in one sentence. */
export type Reply = { readonly done: Readonly<Record<string, string | number>> } | { readonly refused: string }

const POLL_MS = 20
const LETTERS_MAX = 64

/** Asks, and waits for the answer for at most `wait_ms`. A refusal, or none to hear, is a failure. */
export const sendLetter = async (
  letters: string,
  letter: Letter,
  wait_ms = 10_000,
): Promise<Readonly<Record<string, string | number>> | Failure> => {
  const addressee = ADDRESSEE[letter.kind]
  const folder = folderOf(letters, addressee)
  const name = newId('letter')
  const path = join(folder, `${name}.json`)
  writeFileSync(`${path}.part`, JSON.stringify(letter), { mode: 0o600 })
  renameSync(`${path}.part`, path)
  const answer = join(folder, `${name}.answer`)
  for (let waited_ms = 0; waited_ms < wait_ms; waited_ms += POLL_MS) {
    await Bun.sleep(POLL_MS)
    const reply = readReply(answer)
    if (reply === undefined) continue
    rmSync(answer)
    return 'done' in reply ? reply.done : new Failure('internal', { says: reply.refused })
  }
  rmSync(path, { force: true })
  return new Failure('overloaded', { says: `The ${addressee} did not answer in time.`, retry_after_s: 1 })
}

const readReply = (path: string): Reply | undefined => {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Reply
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause
    return undefined
  }
}

/** Acts on the letters that lie there for `addressee`, oldest first, one after the other. It calls this from time to time. */
export const answerLetters = async <Name extends Addressee>(
  letters: string,
  addressee: Name,
  act: (letter: LetterTo<Name>) => Reply | Promise<Reply>,
): Promise<void> => {
  const folder = folderOf(letters, addressee)
  const names = readdirSync(folder).filter((name) => name.endsWith('.json'))
  for (const name of names.toSorted().slice(0, LETTERS_MAX)) {
    const path = join(folder, name)
    const text = readFileSync(path, 'utf8')
    // First of all: one that a loss of power emptied must not keep the others waiting for ever.
    rmSync(path)
    const letter = JSON.parse(text) as LetterTo<Name>
    const answer = path.replace(/json$/, 'answer')
    writeFileSync(`${answer}.part`, JSON.stringify(await act(letter)), { mode: 0o600 })
    renameSync(`${answer}.part`, answer)
  }
}

const folderOf = (letters: string, addressee: Addressee): string => {
  const folder = join(letters, addressee)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  return folder
}
