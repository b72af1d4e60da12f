import { Failure } from '../base/failure.ts'
import type { JournalFiles } from './files.ts'
import { number_max } from './format.ts'
import type { OpenSegment } from './segment.ts'

/** Keeps the next segment made ahead of need; tries again on a timer while the disk is full. */
export type Spares = {
  readonly ready: () => boolean
  /** The spare, if there is one; the one after it is begun. */
  take(): OpenSegment | undefined
  /** Why the last try failed; undefined once one succeeds. */
  readonly trouble: () => Failure | undefined
  /** Ends the making and removes a spare that nobody took. */
  stop(where: { readonly folder: string; readonly files: JournalFiles }): Promise<void>
}

/** Begins to make segment `number`, and goes on from there. */
export const keepSpare = (make: (number: number) => Promise<OpenSegment>, number: number, retry_ms: number): Spares => {
  let next = number
  let spare: OpenSegment | undefined
  let trouble: Failure | undefined
  let stopped = false
  let timer: ReturnType<typeof setTimeout> | undefined

  const begin = async (): Promise<void> => {
    try {
      if (next > number_max) throw new Error(`journal: a series has at most ${number_max + 1} segments`)
      spare = await make(next)
      next++
      trouble = undefined
    } catch (cause) {
      trouble = new Failure('journal_full', { cause })
      if (stopped) return
      timer = setTimeout(() => (making = begin()), retry_ms)
      timer.unref()
    }
  }
  let making = begin()

  return {
    ready: () => spare !== undefined,
    take: () => {
      const taken = spare
      if (taken) {
        spare = undefined
        making = begin()
      }
      return taken
    },
    trouble: () => trouble,
    stop: async ({ files, folder }) => {
      stopped = true
      clearTimeout(timer)
      await making
      if (!spare) return
      spare.file.close()
      files.remove(`${folder}/${spare.name}`)
      spare = undefined
    },
  }
}
