import { Failure } from '../base/failure.ts'
import { real_files } from '../journal/files.ts'
import { parseSegmentName } from '../journal/format.ts'
import { pruneJournal, type PruneOptions } from '../journal/prune.ts'
import type { JournalPosition } from '../journal/tail.ts'

/**
 * Removes the journal's posted files that are old enough, and answers the finished series that have no file left. The
 * youngest series of each worker is never among them: its position is what remembers that its number is used up.
 */
export const tidyJournal = (options: PruneOptions): string[] | Failure => {
  const { folder, positions, files = real_files } = options
  const removed = pruneJournal(options)
  if (removed instanceof Failure) return removed
  try {
    return forgettable(positions, new Set(files.list(folder).map((name) => parseSegmentName(name)?.series)))
  } catch (cause) {
    return new Failure('internal', { cause })
  }
}

/** Of the finished series without files, all but the youngest of each worker. */
export const forgettable = (
  positions: readonly JournalPosition[],
  with_files: ReadonlySet<string | undefined>,
): string[] => {
  const youngest = new Map<string, string>()
  for (const { series } of positions) {
    const worker = series.slice(0, series.lastIndexOf('-'))
    if (series > (youngest.get(worker) ?? '')) youngest.set(worker, series)
  }
  const kept = new Set([...youngest.values(), ...with_files])
  return positions.filter(({ series, finished }) => finished && !kept.has(series)).map(({ series }) => series)
}
