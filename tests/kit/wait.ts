import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * Calls `look` again and again until it neither throws nor returns false, and gives back what it returned. After
 * `within_ms` the last error comes out, so an `expect` inside tells what was wrong.
 */
export const eventually = async <T>(look: () => T | Promise<T>, within_ms = 2_000): Promise<T> => {
  const deadline_ms = performance.now() + within_ms
  for (let pause_ms = 1; ; pause_ms = Math.min(2 * pause_ms, 50)) {
    let last: unknown
    try {
      const found = await look()
      if (found !== false) return found
      last = new Error(`still false after ${within_ms} ms`)
    } catch (cause) {
      last = cause
    }
    if (performance.now() >= deadline_ms) throw last
    await Bun.sleep(pause_ms)
  }
}

/** A promise with its handle outside, for scripts and tests that wait for each other instead of for time. */
export const gate = (): { readonly opened: Promise<void>; open(): void } => {
  const { promise, resolve } = Promise.withResolvers<void>()
  return { opened: promise, open: () => resolve() }
}

/** `promise`, or an error that names `what` after `within_ms`. */
export const within = async <T>(promise: Promise<T>, within_ms: number, what: string): Promise<T> => {
  let timer: Timer | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${within_ms} ms`)), within_ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** A port on 127.0.0.1 that nobody listens on at this moment: a connection to it is refused. */
export const freePort = (): number => {
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  const { port } = listener
  listener.stop(true)
  return port
}

const folders = new Set<string>()
const remove = (path: string): void => {
  folders.delete(path)
  rmSync(path, { recursive: true, force: true })
}
process.on('exit', () => {
  for (const path of folders) remove(path)
})

/** A fresh folder: `using folder = tempFolder()`. It goes at the end of the scope, at the latest with the process. */
export const tempFolder = (name = 'weir-test'): { readonly path: string } & Disposable => {
  const path = mkdtempSync(join(tmpdir(), `${name}-`))
  folders.add(path)
  return { path, [Symbol.dispose]: () => remove(path) }
}

/** A whole number from 0 up to, not including, `below`. */
export type Roll = (below: number) => number

/** A reproducible source of numbers. */
export const rollFrom = (seed: number): Roll => {
  // SplitMix64's finaliser over a counter; the high 32 bits give the number.
  let state = BigInt(seed)
  return (below) => {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n)
    let mixed = BigInt.asUintN(64, (state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n)
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn)
    return Math.floor((Number((mixed ^ (mixed >> 31n)) >> 32n) / 2 ** 32) * below)
  }
}

/** One of the list. */
export const pick = <T>(roll: Roll, list: readonly T[]): T => list[roll(list.length)]!

/** Seeds for a run: `runs` consecutive ones from a random first, or only the one in the environment's SEED. */
const seeds = (runs: number): number[] => {
  const given = process.env['SEED']
  if (given !== undefined) return [Number(given)]
  const first = Math.floor(Math.random() * 2 ** 31)
  return Array.from({ length: runs }, (_, run) => first + run)
}

const failed = (seed: number, cause: unknown): Error =>
  new Error(`property failed, repeat with SEED=${seed}: ${cause instanceof Error ? cause.message : String(cause)}`, {
    cause,
  })

/** Checks a property `runs` times with different numbers. A failure names the seed; `SEED=n bun test …` repeats it. */
export const forAll = (runs: number, holds: (roll: Roll) => void): void => {
  for (const seed of seeds(runs)) {
    try {
      holds(rollFrom(seed))
    } catch (cause) {
      throw failed(seed, cause)
    }
  }
}

/** {@link forAll} for properties that must be awaited; one run after the other. */
export const forAllAsync = async (runs: number, holds: (roll: Roll) => Promise<void>): Promise<void> => {
  for (const seed of seeds(runs)) {
    try {
      await holds(rollFrom(seed))
    } catch (cause) {
      throw failed(seed, cause)
    }
  }
}
