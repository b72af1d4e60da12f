import { Failure } from '../src/base/failure.ts'
import { admit } from '../src/pipeline/admit.ts'
import { readBody } from '../src/pipeline/body.ts'
import type { Arrival, Call, Limited, Routed } from '../src/pipeline/call.ts'
import { ENDPOINTS } from '../src/pipeline/endpoints.ts'
import { enrich } from '../src/pipeline/enrich.ts'
import { frame } from '../src/pipeline/frame.ts'
import type { House } from '../src/pipeline/house.ts'
import { identify } from '../src/pipeline/identify.ts'
import { recordIntent } from '../src/pipeline/intent.ts'
import { limit } from '../src/pipeline/limit.ts'
import { route } from '../src/pipeline/route.ts'
import { screen } from '../src/pipeline/screen.ts'
import { endCall } from '../src/pipeline/settle.ts'
import { houseHere } from './kit/house.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { BENCH_KEY, CHAT } from './kit/servers.ts'

/** A body of 400 bytes. */
const BODY = CHAT.replace('"max_tokens"', `"user":"${'u'.repeat(400 - CHAT.length - 10)}","max_tokens"`)
const BATCH = 64

const TIMED = [
  'admit',
  'frame',
  'identify',
  'limit_with_body',
  'screen',
  'enrich',
  'route',
  'intent',
  'ending',
] as const

/**
 * Nanoseconds of each stage of the hot path: the stages themselves on a worker's real surroundings, one call at a time.
 * `limit` is without reading the body, which is I/O; `limit_with_body` with it, from a request that is in memory.
 */
export const stagesBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const { house, close } = await houseHere()
  const samples = new Samples()
  try {
    await timedFor(house, Math.min(3, warm_s))
    for (let run = 0; run < runs; run++) {
      const times = await timedFor(house, seconds)
      const p50 = (name: string) => quantile(times.get(name)!, 0.5) / 1000
      samples.take('all_p50_us', 'µs', p50('all'))
      samples.take('all_p99_us', 'µs', quantile(times.get('all')!, 0.99) / 1000)
      samples.take('limit_p50_us', 'µs', p50('limit'))
      samples.take('body_p50_us', 'µs', p50('body'))
      for (const name of TIMED) samples.take(`${name}_p50_us`, 'µs', p50(name))
      samples.take('journal_p50_us', 'µs', p50('journal'))
    }
  } finally {
    await close()
  }
  return {
    figures: samples.figures(),
    notes: [
      `a body of ${BODY.length} bytes, one process, no network; the clock's own time is taken off`,
      'all: every stage from admit to route, the intent and the ending, without reading the body; limit: limit_with_body less the same reading alone; journal: intent and ending',
      `warmed for ${Math.min(3, warm_s)} s; the journal takes some 50 MB a second meanwhile`,
    ],
  }
}

const arrival = (): Arrival => ({
  request: new Request('http://127.0.0.1:8080/v1/chat/completions', {
    method: 'POST',
    body: BODY,
    headers: {
      host: '127.0.0.1:8080',
      authorization: `Bearer ${BENCH_KEY}`,
      'content-type': 'application/json',
      'content-length': String(BODY.length),
    },
  }),
  endpoint: ENDPOINTS.chat,
  keepOpen: () => undefined,
})

/** Times of each stage for calls one after the other, for so long. */
const timedFor = async (house: House, seconds: number): Promise<Map<string, number[]>> => {
  const times = new Map<string, number[]>(
    [...TIMED, 'all', 'limit', 'body', 'journal'].map((name) => [name, []] as const),
  )
  const clock_ns = clockNs()
  for (const until = performance.now() + seconds * 1000; performance.now() < until;) {
    const arrivals = Array.from({ length: BATCH }, arrival)
    const readings = Array.from({ length: BATCH }, arrival)
    for (let at = 0; at < BATCH; at++) {
      // A bench can append faster than segments are made.
      while (!house.journal.has_room()) await Bun.sleep(1)
      await oneCall(arrivals[at]!, readings[at]!, house, times, clock_ns)
    }
    // The journal brings its records to the disk meanwhile.
    await new Promise((resolve) => setImmediate(resolve))
  }
  return times
}

const oneCall = async (
  arriving: Arrival,
  reading: Arrival,
  house: House,
  times: Map<string, number[]>,
  clock_ns: number,
): Promise<void> => {
  let sum = 0
  const spent = (name: string, started: number): void => {
    const ns = Math.max(0, Bun.nanoseconds() - started - clock_ns)
    times.get(name)!.push(ns)
    if (name !== 'body') sum += ns
  }
  const ended = <T>(name: string, started: number, value: T | Failure): T => {
    spent(name, started)
    if (value instanceof Failure) throw new Error(`${name}: ${value.code} ${value.detail.says ?? ''}`)
    return value
  }
  let from = Bun.nanoseconds()
  const { server } = house.catalogue.config
  const read = ended(
    'body',
    from,
    await readBody(reading.request, server.body_bytes_max, server.body_ms, () => undefined),
  )
  if (read.length !== BODY.length) throw new Error('the body is not the body')
  from = Bun.nanoseconds()
  const admitted = ended('admit', from, admit(arriving, house))
  from = Bun.nanoseconds()
  const framed = ended('frame', from, frame(admitted, house))
  from = Bun.nanoseconds()
  const identified = ended('identify', from, identify(framed, house))
  from = Bun.nanoseconds()
  const limited = ended<Limited | Response>('limit_with_body', from, await limit(identified, house))
  if (limited instanceof Response) throw new Error('a call without an Idempotency-Key was answered as a repeat')
  from = Bun.nanoseconds()
  const screened = ended('screen', from, screen(limited, house))
  from = Bun.nanoseconds()
  const enriched = ended('enrich', from, enrich(screened, house))
  from = Bun.nanoseconds()
  const routed: Routed = ended('route', from, later(route(enriched, house)))
  from = Bun.nanoseconds()
  ended('intent', from, recordIntent(routed, house))
  from = Bun.nanoseconds()
  endCall(routed as Call, house, { ending: 'whole', status: 200, finish_reason: 'stop', attempts: 1, engine_ms: 1 })
  spent('ending', from)
  const last = (name: string) => times.get(name)!.at(-1)!
  times.get('all')!.push(sum - Math.min(last('body'), last('limit_with_body')))
  times.get('limit')!.push(Math.max(0, last('limit_with_body') - last('body')))
  times.get('journal')!.push(last('intent') + last('ending'))
}

/** A stage that had to wait is not what is measured here. */
const later = <T>(value: T | Promise<T>): T => {
  if (value instanceof Promise) throw new Error('the stage waits')
  return value
}

/** What reading the clock twice takes. */
const clockNs = (): number => {
  const times = Array.from({ length: 10_000 }, () => {
    const started = Bun.nanoseconds()
    return Bun.nanoseconds() - started
  })
  return quantile(times, 0.5)
}

const quantile = (values: readonly number[], share: number): number => {
  const sorted = Float64Array.from(values).toSorted()
  return sorted[Math.floor(sorted.length * share)] ?? Number.NaN
}
