import { type Clock, nowMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { type JournalFiles, real_files } from './files.ts'
import { parseSegmentName } from './format.ts'
import type { JournalPosition } from './tail.ts'

export type PruneOptions = {
  readonly folder: string
  /** How far each series was posted; of a finished series all segments may go, of one that is not named none. */
  readonly positions: readonly JournalPosition[]
  /** A segment stays at least this long after it was last written. */
  readonly keep_ms: number
  readonly now?: Clock
  readonly files?: JournalFiles
}

/** Removes the segments that lie wholly before the positions and are old enough; returns their names. */
export const pruneJournal = (options: PruneOptions): string[] | Failure => {
  const { folder, keep_ms, now = nowMs, files = real_files } = options
  const positions = new Map(options.positions.map((position) => [position.series, position]))
  const removed: string[] = []
  try {
    for (const name of files.list(folder).toSorted()) {
      const parsed = parseSegmentName(name)
      const position = parsed && positions.get(parsed.series)
      if (!position || !(position.finished || parsed.segment < position.segment)) continue
      const file = `${folder}/${name}`
      if (now() - files.modifiedMs(file) < keep_ms) continue
      files.remove(file)
      removed.push(name)
    }
    return removed
  } catch (cause) {
    return new Failure('internal', { cause })
  }
}
