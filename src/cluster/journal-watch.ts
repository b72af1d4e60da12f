import type { Journal } from '../journal/writer.ts'
import type { Log } from '../observe/log.ts'

const STATES = {
  well: ['info', 'journal_well', 'calls are taken'],
  short: [
    'warn',
    'journal_cannot_grow',
    'make room on the disk of the data folder; calls go on while the present segment lasts',
  ],
  full: [
    'error',
    'journal_full',
    'new calls get 503; make room on the disk of the data folder, and they are taken again',
  ],
} as const

/** Tells the log when the journal's disk fails and when it is well again; answers whether a new call may begin. */
export const journalWatch = (journal: Pick<Journal, 'has_room' | 'trouble'>, log: Log): (() => boolean) => {
  let before: keyof typeof STATES = 'well'
  return () => {
    const has_room = journal.has_room()
    const trouble = journal.trouble()
    const state = !has_room ? 'full' : trouble ? 'short' : 'well'
    if (state !== before) {
      const [level, event, says] = STATES[state]
      log(level, event, { says, ...(trouble && { cause: trouble.detail.cause }) })
    }
    before = state
    return has_room
  }
}
