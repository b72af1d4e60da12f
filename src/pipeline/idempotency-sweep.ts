import { type Dirent, lstatSync, readdirSync, readlinkSync, rmSync } from 'node:fs'
import { parseClaim } from './idempotency-store.ts'

/** What keeps the store of `idempotency-store.ts` in bounds, in the control process and nowhere else. */
export type SweepPorts = {
  readonly folder: string
  /** True while the worker that an owner's name means can still end its calls. */
  readonly is_live: (owner: string) => boolean
  readonly bounds: () => { readonly keep_ms: number; readonly entries_max: number; readonly bytes_max: number }
  readonly now: () => number
}

/** What a sweep left, and what it took away. */
export type Swept = { entries: number; bytes: number; expired: number; over: number; orphans: number }

/** A file takes up whole blocks. */
const BLOCK_BYTES = 4_096

/**
 * Takes away the claims and parts of workers that are gone: their calls were cut, so the next of the same name runs.
 * Answers how many. Cheap: there is one claim for each such call in flight.
 */
export const sweepClaims = ({ folder, is_live }: Pick<SweepPorts, 'folder' | 'is_live'>): number => {
  let gone = 0
  for (const { name } of list(`${folder}/claims`)) {
    const path = `${folder}/claims/${name}`
    const owner = ownerOf(path)
    if (owner === undefined || is_live(owner)) continue
    rmSync(path, { force: true })
    gone += 1
  }
  for (const { name } of list(`${folder}/parts`)) {
    if (is_live(name.slice(name.indexOf('.') + 1))) continue
    rmSync(`${folder}/parts/${name}`, { force: true })
    gone += 1
  }
  return gone
}

// Dead owners never come back, so between this look and the removal the claim cannot become another's.
const ownerOf = (path: string): string | undefined => {
  try {
    return parseClaim(readlinkSync(path)).owner
  } catch (cause) {
    if ((cause as { code?: string }).code === 'ENOENT') return undefined
    throw cause
  }
}

/** Takes away answers that are older than `keep_ms` and, over a bound, the oldest. Yields between folders. */
export const sweepAnswers = async ({ folder, bounds, now }: SweepPorts): Promise<Swept> => {
  const { keep_ms, entries_max, bytes_max } = bounds()
  const swept: Swept = { entries: 0, bytes: 0, expired: 0, over: 0, orphans: 0 }
  const kept: { path: string; at_ms: number; bytes: number }[] = []
  const before_ms = now() - keep_ms
  for (const shard of list(`${folder}/answers`)) {
    await Bun.sleep(0)
    for (const { name } of list(`${folder}/answers/${shard.name}`)) {
      const path = `${folder}/answers/${shard.name}/${name}`
      const { mtimeMs: at_ms, size } = lstatSync(path)
      if (at_ms < before_ms) {
        rmSync(path)
        swept.expired += 1
        continue
      }
      const bytes = Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES
      kept.push({ path, at_ms, bytes })
      swept.bytes += bytes
    }
  }
  kept.sort((one, other) => one.at_ms - other.at_ms)
  for (const { path, bytes } of kept) {
    if (kept.length - swept.over <= entries_max && swept.bytes <= bytes_max) break
    rmSync(path)
    swept.over += 1
    swept.bytes -= bytes
  }
  swept.entries = kept.length - swept.over
  return swept
}

const list = (folder: string): Dirent[] => {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch (cause) {
    if ((cause as { code?: string }).code === 'ENOENT') return []
    throw cause
  }
}

const CLAIMS_MS = 500
const ANSWERS_MS = 10_000
/** At most this share of the time goes into looking through the answers. */
const SHARE = 0.05

/** Sweeps until stopped: claims at once and twice a second, answers every ten seconds or, if they are many, less often. */
export const keepSwept = (
  ports: SweepPorts,
  tick: () => number,
  tell: (event: 'swept' | 'failed', detail: object) => void,
): { stop(): void } => {
  let answers_due_ms = tick() + ANSWERS_MS
  let sweeping = false
  const sweep = async (): Promise<void> => {
    const gone = sweepClaims(ports)
    if (gone > 0) tell('swept', { orphans: gone })
    if (sweeping || tick() < answers_due_ms) return
    sweeping = true
    try {
      const began_ms = tick()
      const swept = await sweepAnswers(ports)
      if (swept.expired + swept.over > 0) tell('swept', swept)
      answers_due_ms = tick() + Math.max(ANSWERS_MS, (tick() - began_ms) / SHARE)
    } finally {
      sweeping = false
    }
  }
  const run = (): void => void sweep().catch((cause: unknown) => tell('failed', { cause }))
  const timer = setInterval(run, CLAIMS_MS)
  run()
  return { stop: () => clearInterval(timer) }
}
