import { type EngineProcess, engineProcess } from '../tests/journey/fleet.ts'
import { type Paced, paced, pacedFor, quantile } from './kit/paced.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { startWeir } from './kit/servers.ts'

const PER_S = 200
const TOKENS = 12
const NAMES = ['a', 'b', 'c'] as const

/** How an engine goes, and how it comes back. */
const FAULTS = {
  sigkill: { go: (engine: EngineProcess) => engine.kill(), back: (engine: EngineProcess) => engine.start() },
  sigstop: {
    go: (engine: EngineProcess) => Promise.resolve(engine.signal('SIGSTOP')),
    back: (engine: EngineProcess) => Promise.resolve(engine.signal('SIGCONT')),
  },
} as const

/** How an engine stands in the house's books. */
type Standing = { readonly name: string; readonly health: string; readonly failed: number }

/**
 * One of three demo engines is killed, and stopped, under 200 calls a second, every other one a stream: failed calls,
 * how soon the engine was out and how many attempts it still failed, and when it answers again after its return.
 */
export const outageBench = async (
  { runs, warm_s }: Pick<Options, 'runs' | 'warm_s'>,
  { before_ms, out_ms, after_ms } = { before_ms: 1_000, out_ms: 3_000, after_ms: 6_000 },
): Promise<Result> => {
  const engines = await Promise.all(NAMES.map(() => engineProcess({ ttft_ms: 30, tokens_per_s: 200 })))
  const weir = await startWeir('', { workers: 2, config: configOf(engines) })
  const samples = new Samples()
  const ask = (nth: number) =>
    fetch(`${weir.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { ...weir.headers, 'content-type': 'application/json' },
      body: JSON.stringify({
        ...{ model: 'm', max_tokens: TOKENS, messages: [{ role: 'user', content: `call ${nth % 50}` }] },
        ...(nth % 2 === 1 && { stream: true, stream_options: { include_usage: true } }),
      }),
    })
  const standing = async (): Promise<Standing> => {
    const headers = { authorization: 'Bearer bench-admin-token' }
    const page = await fetch(`${weir.ops}/admin/engines?limit=10`, { headers })
    return ((await page.json()) as { data: Standing[] }).data.find(({ name }) => name === NAMES[0])!
  }
  try {
    await pacedFor(Math.min(warm_s, 3), PER_S, ask)
    for (let run = 0; run < runs; run++)
      for (const [name, { go, back }] of Object.entries(FAULTS)) {
        let over = false
        const load = paced(PER_S, ask, () => over)
        await Bun.sleep(before_ms)
        const watching = watch(standing, out_ms)
        await go(engines[0]!)
        const out = await watching
        const back_ms = performance.now()
        await back(engines[0]!)
        await Bun.sleep(after_ms)
        over = true
        for (const [what, unit, value] of [...out, ...clientsSaw(await load, back_ms)])
          samples.take(`${name}_${what}`, unit, value)
      }
  } finally {
    await weir.stop()
    for (const engine of engines) await engine.kill()
  }
  return {
    figures: samples.figures(),
    notes: [
      `${PER_S} calls a second on two workers over three demo engines (first token after 30 ms, ${TOKENS} tokens 5 ms apart), half of them streams; the engine is gone for ${out_ms / 1_000} s`,
      `failed: no whole answer of ${TOKENS} tokens; ejected_ms: until the house has the engine benched; attempts_failed_1s and _later: at that engine, within a second of the fault and after it (trials of ended benches)`,
      'back_ms: from the return (for SIGKILL: from the start of its process) to the end of the first answer by it; first_byte_ms of the model is 500',
    ],
  }
}

type Sample = readonly [what: string, unit: string, value: number]

/** How the engine fares from now on: when it is out, and attempts that it fails. */
const watch = async (standing: () => Promise<Standing>, out_ms: number): Promise<Sample[]> => {
  const gone_ms = performance.now()
  const before = (await standing()).failed
  let ejected_ms = Number.POSITIVE_INFINITY
  let within_1s = 0
  let failed = 0
  while (performance.now() - gone_ms < out_ms) {
    const now = await standing()
    const after_ms = performance.now() - gone_ms
    failed = now.failed - before
    if (after_ms <= 1_000) within_1s = failed
    if (now.health !== 'healthy') ejected_ms = Math.min(ejected_ms, after_ms)
    await Bun.sleep(10)
  }
  return [
    ['ejected_ms', 'ms', ejected_ms],
    ['attempts_failed_1s', 'attempts', within_1s],
    ['attempts_failed_later', 'attempts', failed - within_1s],
  ]
}

const clientsSaw = (seen: readonly Paced[], back_ms: number): Sample[] => {
  const again = seen.filter(({ engine, at_ms }) => engine === NAMES[0] && at_ms > back_ms)
  const whole_ms = seen.map(({ at_ms, end_ms }) => end_ms - at_ms)
  return [
    ['calls', 'calls', seen.length],
    ['failed', 'calls', seen.filter((one) => !isWhole(one)).length],
    ['back_ms', 'ms', Math.min(...again.map(({ end_ms }) => end_ms)) - back_ms],
    ['p50_ms', 'ms', quantile(whole_ms, 0.5)],
    ['p99_ms', 'ms', quantile(whole_ms, 0.99)],
    ['max_ms', 'ms', quantile(whole_ms, 1)],
  ]
}

/** True if the client got everything: a good status, all tokens by the engine's or the house's count, and the end of the stream. */
const isWhole = ({ status, body }: Paced): boolean =>
  status === 200 &&
  body.includes(`"completion_tokens":${TOKENS}`) &&
  !body.includes('"error"') &&
  (!body.startsWith('data:') || body.endsWith('data: [DONE]\n\n'))

const configOf = (engines: readonly EngineProcess[]) => ({
  engines: engines.map(({ url }, nth) => ({ name: NAMES[nth]!, url, probe_ms: 500, scrape_ms: 500 })),
  models: [
    {
      name: 'm',
      free: true,
      targets: NAMES.map((engine) => ({ engine, model: 'm' })),
      timeouts: { first_byte_ms: 500, between_tokens_ms: 500 },
    },
  ],
})
