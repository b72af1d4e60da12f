import type { DemoEngine } from '../../../src/engines/demo/engine.ts'
import { readSse, type SseRead } from '../../kit/sse-read.ts'

/** Defaults without any waiting. */
export const at_once = { ttft_ms: 0, tokens_per_s: 0 } as const

export const user = (content: unknown) => [{ role: 'user', content }]

type Options = { readonly headers?: Record<string, string>; readonly signal?: AbortSignal }

/** POSTs a JSON body (a string goes as it is) to an address under `/v1`. */
export const post = (engine: DemoEngine, address: string, body: unknown, options: Options = {}): Promise<Response> =>
  fetch(`${engine.url}/${address}`, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...options,
  })

/** The JSON of an answer. */
export const answer = async (engine: DemoEngine, address: string, body: object, options: Options = {}): Promise<any> =>
  (await post(engine, address, body, options)).json()

/** The first choice of a chat. */
export const chat = async (engine: DemoEngine, body: object): Promise<any> => {
  const whole = await answer(engine, 'chat/completions', body)
  return { ...whole.choices[0], usage: whole.usage }
}

/** A streamed answer, read to its end. */
export const streamed = async (
  engine: DemoEngine,
  address: string,
  body: object,
  options: Options = {},
): Promise<SseRead> => readSse(await post(engine, address, { ...body, stream: true }, options))

/** The value of a metric line whose name and labels contain all the parts; the sum if there are several. */
export const metric = async (engine: DemoEngine, name: string, ...labels: readonly string[]): Promise<number> => {
  const text = await (await fetch(engine.url.replace('/v1', '/metrics'))).text()
  const lines = text
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) && labels.every((label) => line.includes(label)))
  if (lines.length === 0) throw new Error(`no metric ${name} ${labels.join(' ')}`)
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}
