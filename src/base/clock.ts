/** The one place that reads the clock. Tests pass their own where time matters. */
export type Clock = () => number

/** Milliseconds since the epoch, with a fraction where the platform gives one. */
export const nowMs: Clock = () => Date.now()

/** Milliseconds on a clock that never goes back; only differences mean anything. */
export const tickMs: Clock = () => Bun.nanoseconds() / 1e6
