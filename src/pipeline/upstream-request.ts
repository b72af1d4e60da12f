import type { Target } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import type { EngineConfig } from '../config/schema.ts'
import {
  addMembers,
  type Edit,
  type Member,
  replaceValue,
  setMember,
  setNested,
  splice,
} from '../engines/json-splice.ts'
import type { UpstreamRequest } from '../engines/transport.ts'
import { joinUrl } from '../engines/url.ts'
import type { Body } from './body.ts'
import type { Routed } from './call.ts'

/** Headers of the client that an engine may see. Everything else stays here, above all the client's credential. */
const PASSED = ['traceparent', 'tracestate'] as const

/** True if the call is to be answered with an event stream. */
export const streams = (call: Routed): boolean => call.body.stream && call.arrival.endpoint.streams

/** What makes a request one for the rest of an answer. */
export type Rewrite = {
  /** They touch neither the model's name nor the wish for usage. */
  readonly edits: readonly Edit[]
  /** Tokens of the answer that are there already: the house's own bound is for all of it. */
  readonly had_tokens: number
}

const AS_IT_IS: Rewrite = { edits: [], had_tokens: 0 }

/** What is sent to an engine: the client's bytes, but for the model's name there, the wish for usage and a rewrite. */
export const upstreamRequest = (
  call: Routed,
  target: Target,
  { edits: more, had_tokens }: Rewrite = AS_IT_IS,
): UpstreamRequest | Failure => {
  const { endpoint } = call.arrival
  const own = bodyEdits(call, target, had_tokens)
  if (own instanceof Failure) return own
  const edits = [...own, ...more]
  const { config } = target.engine
  const at = wayTo(config)
  const own_headers = streams(call) ? at.stream : at.whole
  const passed = PASSED.flatMap((name) => {
    const value = call.headers.get(name)
    return value === null ? [] : [[name, value] as const]
  })
  return {
    method: 'POST',
    url: addressOf(at, endpoint.engine_path),
    headers: passed.length === 0 ? own_headers : [...own_headers, ...passed],
    body: edits.length === 0 ? [call.body.bytes] : splice(call.body.bytes, edits),
  }
}

const bodyEdits = (call: Routed, target: Target, had_tokens: number): Edit[] | Failure => {
  const { body } = call
  const { bytes, scan } = body
  const edits: Edit[] = []
  if (target.model !== body.model) edits.push(replaceValue(scan.values.model!, JSON.stringify(target.model)))
  if (streams(call) && !target.engine.config.can.includes('no_stream_options')) {
    const options = streamOptions(body, asksContinuous(call, target))
    if (options instanceof Failure) return options
    edits.push(...options)
  }
  const ceiling = call.held?.ceiling_tokens
  if (ceiling !== undefined) {
    const asked = scan.values.max_completion_tokens ?? scan.values.max_tokens
    const left = String(Math.max(1, ceiling - had_tokens))
    if (asked) edits.push(replaceValue(asked, left))
    else edits.push(addMembers(bytes, scan.root, [['max_tokens', left]], 'start'))
  }
  return edits
}

/** True if the engine is to tell its usage with every chunk. */
export const asksContinuous = (call: Routed, { engine }: Target): boolean =>
  streams(call) && engine.config.can.includes('continuous_usage') && !engine.config.can.includes('no_stream_options')

/** Asks for usage, where the client did not: in the last chunk, and if so wished in every one. */
const streamOptions = (body: Body, continuous: boolean): Edit[] | Failure => {
  const { bytes, scan, wants_usage, wants_continuous_usage } = body
  const outer = scan.values.stream_options
  const wanted: (typeof OPTIONS)[number][] = []
  if (!wants_usage) wanted.push('include_usage')
  if (continuous && !wants_continuous_usage) wanted.push('continuous_usage_stats')
  const [first] = wanted
  if (first === undefined) return []
  if (outer?.type !== 'object') {
    const one = setNested(bytes, scan.root, ['stream_options', first], outer, undefined, 'true')
    if (one instanceof Failure || wanted.length === 1) return one instanceof Failure ? one : [one]
    const both = JSON.stringify(Object.fromEntries(wanted.map((name) => [name, true])))
    return [setMember(bytes, scan.root, 'stream_options', outer, both)]
  }
  const edits: Edit[] = []
  const missing: Member[] = []
  for (const name of wanted) {
    const said = scan.values[`stream_options.${name}`]
    if (said === undefined) missing.push([name, 'true'])
    else edits.push(replaceValue(said, 'true'))
  }
  return missing.length === 0 ? edits : [...edits, addMembers(bytes, outer, missing)]
}

const OPTIONS = ['include_usage', 'continuous_usage_stats'] as const

/** What is the same in every request to an engine. */
type Way = {
  readonly url: string
  /** By path: a handful. */
  readonly addresses: Map<string, string>
  readonly whole: UpstreamRequest['headers']
  readonly stream: UpstreamRequest['headers']
}

const ways = new WeakMap<EngineConfig, Way>()

const wayTo = (config: EngineConfig): Way => {
  let way = ways.get(config)
  if (way === undefined) {
    const headersFor = (accept: string): UpstreamRequest['headers'] => {
      const headers: [string, string][] = [
        ['content-type', 'application/json'],
        ['accept', accept],
        ['user-agent', 'weir'],
      ]
      if (config.key !== undefined) headers.push(['authorization', `Bearer ${config.key}`])
      return Object.freeze(headers)
    }
    const [whole, stream] = [headersFor('application/json'), headersFor('text/event-stream')]
    ways.set(config, (way = { url: config.url, addresses: new Map(), whole, stream }))
  }
  return way
}

const addressOf = ({ url, addresses }: Way, path: string): string => {
  let address = addresses.get(path)
  if (address === undefined) addresses.set(path, (address = joinUrl(url, path)))
  return address
}
