import { readFileSync } from 'node:fs'
import { openLogReader, type LogReader, type SharedLogReader } from '../audit/read-side.ts'
import { Failure } from '../base/failure.ts'
import { sendLetter, type Letter } from '../ledger/mailbox.ts'

/** The Merkle log as a process sees it that does not write it. */
export type AuditView = {
  /** The log up to its newest checkpoint; a failure while there is none. */
  reader(): LogReader | Failure
  /** `NAME+ID+BASE64` of every key that the log ever signed with, oldest first. */
  publicKeys(): readonly string[] | Failure
  /** Asks the process that may change it. */
  ask(letter: Letter): ReturnType<typeof sendLetter>
}

/** Opens a view of the log in `folder`; the auditor may begin it later. Letters wait `answer_ms`. */
export const openAuditView = (folder: string, letters: string, answer_ms = 10_000): AuditView => {
  let reader: SharedLogReader | undefined
  return {
    reader: () => {
      if (reader === undefined) {
        const opened = openLogReader(folder)
        if (opened instanceof Failure)
          return new Failure('not_found', { says: 'There is no audit log yet.', cause: opened })
        reader = opened
      }
      return reader.refresh() ?? reader
    },
    publicKeys: () => {
      try {
        const text = readFileSync(`${folder}/signing-key.pub`, 'utf8')
        return text.split('\n').filter((line) => line !== '')
      } catch (cause) {
        return new Failure('not_found', { says: 'There is no audit log yet.', cause })
      }
    },
    ask: (letter) => sendLetter(letters, letter, answer_ms),
  }
}
