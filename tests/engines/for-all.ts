/** A number in `[0, below)`, the same sequence for the same seed. */
export type Roll = (below: number) => number

/** Runs a property with many seeds; a failure names its seed, and `SEED=n` runs that one alone. */
export const forAll = (runs: number, holds: (roll: Roll) => void): void => {
  const only = process.env['SEED']
  const first = only === undefined ? 1 : Number(only)
  for (let seed = first; seed < first + (only === undefined ? runs : 1); seed++) {
    try {
      holds(rolls(seed))
    } catch (cause) {
      throw new Error(`SEED=${seed}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
    }
  }
}

/** The mulberry32 generator. */
const rolls = (seed: number): Roll => {
  let state = Math.imul(seed, 0x9e3779b1) >>> 0
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}
