import { writeFileSync } from 'node:fs'

/** What the processes of a test tell each other, in cells of a mapped file: first cells of each list. */
export const LOG = {
  over: 0,
  held: 1,
  pause: 2,
  paused: 3,
  clock: 4,
  rounds: 5,
  stale: 6,
  resume: 7,
  meetings: 100,
  price: 200,
  limit: 300,
  admitted: 400,
  /** By worker in one window, or by window and worker: {@link chargedIn}. */
  charged: 500,
} as const

export const openLog = (path: string): BigInt64Array => {
  const bytes = Bun.mmap(path, { shared: true })
  return new BigInt64Array(bytes.buffer, bytes.byteOffset, 2_000)
}

export const createLog = (path: string): BigInt64Array => {
  writeFileSync(path, new Uint8Array(16_000))
  return openLog(path)
}

/** The cell of what a worker was charged in a window. */
export const chargedIn = (window: number, worker: number): number => LOG.charged + window * 4 + worker
