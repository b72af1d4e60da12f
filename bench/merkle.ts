import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { leafBytes } from '../src/audit/leaf.ts'
import { type Log, openLog } from '../src/audit/log.ts'
import { NodeStore } from '../src/audit/node-store.ts'
import { Failure } from '../src/base/failure.ts'
import { pureSha256 } from './sha256.ts'

export type Figure = { value: number; unit: string; min: number; max: number; n: number }

/** How much is measured. The defaults take about half a minute; tests run a thousandth of it. */
export type MerkleSize = { readonly runs: number; readonly rate_leaves: number; readonly history_leaves: number }
const WHOLE: MerkleSize = { runs: 3, rate_leaves: 1_000_000, history_leaves: 10_000_000 }

const BATCH = 1024

/** Leaves of 64 bytes, all different. */
const leaves = (count: number): Uint8Array[] =>
  Array.from({ length: count }, (_, at) => {
    const leaf = new Uint8Array(64)
    new DataView(leaf.buffer).setUint32(0, at)
    return leaf
  })

/** A leaf like that of a call. */
const rows = (count: number): Uint8Array[] =>
  Array.from({ length: count }, (_, at) =>
    leafBytes({
      id: `call_${at.toString(16).padStart(32, '0')}`,
      at: '2026-08-22T10:00:00.000Z',
      tenant: 'acme',
      key: 'key_0190c7a1b2c3d4e5f60718293a4b5c6d',
      model: 'llama-3.1-8b',
      engine: 'vllm-a',
      endpoint: '/v1/chat/completions',
      stream: true,
      status: 200,
      finish_reason: 'stop',
      ending: 'whole',
      prompt_tokens: 310,
      cached_tokens: 64,
      completion_tokens: 128 + at,
      usage_source: 'engine',
      hold_nanodollars: 6_550_000n,
      charge_nanodollars: 138_800n,
      request_sha256: new Uint8Array(32).fill(at),
      response_sha256: new Uint8Array(32).fill(at + 1),
    }),
  )

/** Appending in plain TypeScript: peaks in memory, the nodes to one array, as the shipped code does it. */
const pureRoot = (all: readonly Uint8Array[]): string => {
  const nodes = new Uint8Array(all.length * 64 + 54 * 32)
  const peaks: Uint8Array[] = []
  const input = new Uint8Array(65)
  let at = 0
  for (let index = 0; index < all.length; index++) {
    let carried = new Uint8Array(32)
    input[0] = 0
    input.set(all[index]!, 1)
    pureSha256(input, 65, carried)
    nodes.set(carried, at)
    at += 32
    input[0] = 1
    for (let rest = index; rest % 2 === 1; rest = (rest - 1) / 2) {
      input.set(peaks.pop()!, 1)
      input.set(carried, 33)
      carried = new Uint8Array(32)
      pureSha256(input, 65, carried)
      nodes.set(carried, at)
      at += 32
    }
    peaks.push(carried)
  }
  const bagged = peaks.reduceRight((right, left) => {
    const root = new Uint8Array(32)
    input.set(left, 1)
    input.set(right, 33)
    pureSha256(input, 65, root)
    return root
  })
  return bagged.toHex()
}

const must = <T>(value: T | Failure): T => {
  if (value instanceof Failure) throw new Error(value.detail.says, { cause: value.detail.cause })
  return value
}

const perSecond = (count: number, work: () => void): number => {
  const started_ns = Bun.nanoseconds()
  work()
  return (count * 1e9) / (Bun.nanoseconds() - started_ns)
}

/** The shipped path: leaf hash, inner nodes, and the node file, in batches as the accountant appends them. */
const shipped = (folder: string, all: readonly Uint8Array[], times: number): { rate: number; root: string } => {
  const path = join(folder, 'rate')
  rmSync(path, { force: true })
  const store = new NodeStore(path)
  const rate = perSecond(all.length * times, () => {
    for (let time = 0; time < times; time++) {
      for (let at = 0; at < all.length; at += BATCH) store.append(all, at, Math.min(at + BATCH, all.length))
    }
  })
  const root = store.root().toHex()
  store.close()
  return { rate, root }
}

type Take = (name: string, unit: string, value: number) => void

/** Shipped and plain TypeScript in turn, at four sizes; the roots must be the same. Small sizes repeat to the largest. */
const ratios = (folder: string, size: MerkleSize, take: Take): void => {
  for (const [name, count] of [
    ['100', 100],
    ['1k', 1_000],
    ['10k', 10_000],
    ['100k', 100_000],
  ] as const) {
    if (count > size.rate_leaves) continue
    const all = leaves(count)
    const repeats = Math.min(size.rate_leaves, 100_000) / count
    let pure_root = ''
    const native: number[] = []
    const pure: number[] = []
    for (let repeat = 0; repeat < repeats; repeat++) {
      const { rate, root } = shipped(folder, all, 1)
      native.push(rate)
      pure.push(perSecond(count, () => (pure_root = pureRoot(all))))
      if (pure_root !== root) throw new Error(`the roots at ${count} leaves differ: ${root} and ${pure_root}`)
    }
    const middle = (rates: number[]) => rates.toSorted((a, b) => a - b)[rates.length >> 1]!
    take(`ratio_${name}`, 'times', middle(native) / middle(pure))
    if (count === Math.min(size.rate_leaves, 100_000)) take('pure_leaves_per_s', 'leaves/s', middle(pure))
  }
}

const wholeLog = (folder: string, all: readonly Uint8Array[], times: number): number => {
  const path = mkdtempSync(join(folder, 'log-'))
  const log = must(openLog(path, { origin: 'bench' }))
  const rate = perSecond(all.length * times, () => {
    for (let time = 0; time < times; time++) must(log.append(all))
  })
  log.close()
  rmSync(path, { recursive: true })
  return rate
}

const proofs = (log: Log, count: number): number => {
  const size = log.size()
  let index = 1
  const rate = perSecond(count, () => {
    for (let proof = 0; proof < count; proof++) {
      index = (index * 48_271) % 2_147_483_647
      must(log.inclusion(index % size))
    }
  })
  return 1e6 / rate
}

const rssMb = (): number => {
  Bun.gc(true)
  return process.memoryUsage.rss() / 2 ** 20
}

/** A long history: memory while it grows, start-up with it, proofs out of it. */
const history = (folder: string, size: MerkleSize, take: Take): void => {
  const path = join(folder, 'history')
  const all = leaves(BATCH)
  let log = must(openLog(path, { origin: 'bench' }))
  const grow = (to: number) => {
    while (log.size() < to) must(log.append(all.slice(0, Math.min(BATCH, to - log.size()))))
  }
  grow(size.history_leaves / 10)
  const rss_early_mb = rssMb()
  const rest = size.history_leaves - log.size()
  take(
    'history_leaves_per_s',
    'leaves/s',
    perSecond(rest, () => grow(size.history_leaves)),
  )
  take('rss_growth_mb_1m_to_10m', 'MB', rssMb() - rss_early_mb)
  must(log.checkpoint())
  for (let run = 0; run < size.runs; run++) {
    log.close()
    const started_ns = Bun.nanoseconds()
    log = must(openLog(path, { origin: 'bench', ledger_size: size.history_leaves }))
    take('open_ms_10m', 'ms', (Bun.nanoseconds() - started_ns) / 1e6)
    proofs(log, size.history_leaves / 1_000)
    take('proof_us_10m', 'us', proofs(log, size.history_leaves / 500))
  }
  log.close()
}

/** The Merkle log's figures: rates of appending, the ratio to plain TypeScript, and what ten million leaves cost. */
export const merkleBench = async (size: Partial<MerkleSize> = {}) => {
  const whole = { ...WHOLE, ...size }
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const samples = new Map<string, { unit: string; values: number[] }>()
  const take: Take = (name, unit, value) => {
    const sample = samples.get(name) ?? { unit, values: [] }
    sample.values.push(value)
    samples.set(name, sample)
  }
  try {
    const small = leaves(BATCH * 16)
    const large = rows(BATCH)
    const row_times = Math.max(1, Math.round(whole.rate_leaves / 8 / large.length))
    shipped(folder, small, 4)
    for (let run = 0; run < whole.runs; run++) {
      const times = Math.max(1, Math.round(whole.rate_leaves / small.length))
      take('leaves_per_s', 'leaves/s', shipped(folder, small, times).rate)
      take('rows_per_s', 'rows/s', wholeLog(folder, large, row_times))
      ratios(folder, whole, take)
      await Bun.sleep(0)
    }
    history(folder, whole, take)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  const figures = Object.fromEntries([...samples].map(([name, { unit, values }]) => [name, figure(values, unit)]))
  const notes = [
    'leaves_per_s: leaves of 64 bytes in batches of 1,024: leaf hash, inner nodes and the node file.',
    `rows_per_s: the whole log with rows of ${rows(1)[0]!.byteLength} bytes, whose bytes are stored as well.`,
    'ratio_*: leaves_per_s over the same in plain TypeScript, in turn; pure_leaves_per_s at the largest size.',
    'proof_us_10m: a checked inclusion proof with its root for random leaves; open_ms_10m: opening with a signed checkpoint.',
  ]
  return { figures, notes }
}

const figure = (values: readonly number[], unit: string): Figure => {
  const sorted = values.toSorted((a, b) => a - b)
  const round = (value: number) => Number(value.toPrecision(4))
  return {
    value: round(sorted[sorted.length >> 1]!),
    unit,
    min: round(sorted[0]!),
    max: round(sorted.at(-1)!),
    n: sorted.length,
  }
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(await merkleBench(), null, 1)}\n`)
