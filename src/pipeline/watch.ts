/**
 * Deadlines of all running calls of a worker, looked at by one timer: moving a deadline is an assignment, so every byte
 * of a stream may do it. Expiry is late by at most {@link SWEEP_MS}.
 */

export const SWEEP_MS = 20

/** One call's deadline on the monotonic clock; `expire` is called once for each time it passes and may set the next. */
export type Watched = {
  due_tick_ms: number
  expire(now_tick_ms: number): void
  /** Called once, at the first sweep that finds it: what only a call that lasts needs. */
  lasts?(): void
  /** The call must end now; what has no answer to end does without. */
  cut?(): void
}

export type Watch = {
  add(watched: Watched): void
  remove(watched: Watched): void
  /** Ends every call that still runs. */
  cutAll(): void
  stop(): void
  /** How late the last sweep was: the event loop's lag. */
  lag_ms(): number
}

export const openWatch = (tick: () => number): Watch => {
  const all = new Set<Watched>()
  let young: Watched[] = []
  let expected_tick_ms = tick() + SWEEP_MS
  let lag_ms = 0
  const timer = setInterval(() => {
    const now = tick()
    lag_ms = Math.max(0, now - expected_tick_ms)
    expected_tick_ms = now + SWEEP_MS
    const old_enough = young
    young = []
    for (const watched of old_enough) if (all.has(watched)) watched.lasts!()
    for (const watched of all) if (watched.due_tick_ms <= now) watched.expire(now)
  }, SWEEP_MS)
  return {
    add: (watched) => {
      all.add(watched)
      if (watched.lasts) young.push(watched)
    },
    remove: (watched) => void all.delete(watched),
    cutAll: () => {
      const running = [...all]
      for (const watched of running) watched.cut?.()
    },
    stop: () => clearInterval(timer),
    lag_ms: () => lag_ms,
  }
}
