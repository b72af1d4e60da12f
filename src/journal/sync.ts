import { Failure } from '../base/failure.ts'

/** Group commit: one sync at a time; who comes while one is in flight shares the next. */
export type Syncer = {
  /** Resolves when everything up to the position is on disk, or with the failure if the disk refused. */
  wait(position: number): Promise<Failure | undefined>
  /** Starts a sync within `sync_ms`, once for any number of calls; if one is running then, right after it. */
  soon(): void
  /** Why the last sync failed; undefined if it did not. */
  trouble(): Failure | undefined
  /** Stops the timer; who waits now is still served. */
  stop(): void
  /** Syncs that succeeded. */
  readonly count: () => number
}

export type SyncerOptions = {
  readonly sync_ms: number
  /** How long to wait after a failed sync before the next try. */
  readonly retry_ms: number
  /** Brings everything appended so far to the disk and resolves to the position reached; rejects if the disk failed. */
  readonly sync: () => Promise<number>
}

/** A syncer with nothing to do yet. */
export const createSyncer = ({ sync, sync_ms, retry_ms }: SyncerOptions): Syncer => {
  let durable = 0
  let syncs = 0
  let trouble: Failure | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let running = false
  /** A sync is due that the running one does not cover. */
  let due = false
  let waiting: ((result: Failure | undefined) => void)[] = []

  const later = (delay_ms: number) => {
    timer = setTimeout(run, delay_ms)
    timer.unref()
  }

  const run = async (): Promise<void> => {
    clearTimeout(timer)
    timer = undefined
    if (running) {
      due = true
      return
    }
    running = true
    due = false
    // Callers that the last group woke are about to come back: with this turn of the loop they share one sync.
    await new Promise((turn) => setImmediate(turn))
    const group = waiting
    waiting = []
    try {
      durable = await sync()
      trouble = undefined
      syncs++
    } catch (cause) {
      trouble = new Failure('journal_full', { cause })
    }
    running = false
    for (const done of group) done(trouble)
    if (trouble) {
      if (!timer) later(retry_ms)
    } else if (due || waiting.length > 0) void run()
  }

  return {
    wait: (position) => {
      if (position <= durable) return Promise.resolve(undefined)
      return new Promise((done) => {
        waiting.push(done)
        if (!running) void run()
      })
    },
    soon: () => {
      if (!timer) later(sync_ms)
    },
    trouble: () => trouble,
    stop: () => clearTimeout(timer),
    count: () => syncs,
  }
}
