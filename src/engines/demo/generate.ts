import type { ModelState } from './metrics.ts'
import { planOf, type Plan } from './plan.ts'
import type { Prompt } from './prompt.ts'
import { Refusal } from './refusal.ts'
import { tokensMax, type Body, type Tool } from './request.ts'
import { answerStream, answerWhole, enter, type Frames, type Pace } from './run.ts'
import type { DemoOrders, DemoSettings } from './settings.ts'
import type { Shape } from './shape.ts'

/** What an endpoint asks of the generator, once its body is read and found good. */
export type Generation = {
  readonly request: Request
  readonly body: Body
  readonly model: ModelState
  readonly shape: Shape
  readonly prompts: readonly Prompt[]
  readonly tools: readonly Tool[]
  /** Alternatives with each token's log probability; undefined for none. */
  readonly top: number | undefined
  /** Put the prompt before the answer. */
  readonly echo: boolean
  /** Tokens of an answer if the client sets no bound; undefined for all that the context holds. */
  readonly tokens_default: number | undefined
}

type Usage = { readonly prompt: number; readonly cached: number }

/** Generates the answers of a call: as one JSON object, or as an event stream if the body says so. */
export const generate = (
  wanted: Generation,
  settings: DemoSettings,
  orders: DemoOrders,
): Response | Promise<Response> => {
  const { body, model, prompts } = wanted
  const limit = boundOf(wanted, settings.context_tokens)
  if (limit instanceof Refusal) return limit.response()
  const choices = (body['n'] as number | null | undefined) ?? 1
  const plans = prompts.flatMap((prompt) =>
    Array.from({ length: choices }, (_, choice) =>
      planOf({ body, prompt, tools: wanted.tools, tokens_max: limit(prompt) }, choice),
    ),
  )
  const usage = { prompt: prompts.reduce((sum, prompt) => sum + prompt.tokens, 0), cached: 0 }
  for (const prompt of prompts) usage.cached += model.prefixes.look(prompt.text)
  const run = enter(model, usage.prompt)
  if (run instanceof Refusal) return run.response()
  model.prefix_queries += usage.prompt
  model.prefix_hits += usage.cached

  const pace = paceOf(settings, orders, usage)
  const first = plans[0]!.finish
  const reason = first === 'tool_calls' ? 'stop' : first
  if (body['stream'] === true) {
    const frames = framesOf(wanted, plans, usage, settings)
    const stream = answerStream(run, pace, frames, reason, orders.cut_after_tokens)
    return new Response(stream, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } })
  }
  const longest = Math.max(...plans.map((plan) => plan.tokens.length))
  const total_ms = pace.ttft_ms + Math.max(longest - 1, 0) * pace.token_ms
  const render = () => Response.json(wholeOf(wanted, plans, usage, settings))
  return answerWhole(run, wanted.request, { ttft_ms: pace.ttft_ms, total_ms, tokens: tokensOf(plans), reason, render })
}

/** How many tokens the answer to a prompt may have, or that a prompt leaves no room for them. */
const boundOf = (wanted: Generation, context_tokens: number): ((prompt: Prompt) => number) | Refusal => {
  const asked = tokensMax(wanted.body)
  for (const { tokens } of wanted.prompts)
    if (tokens + (asked ?? 1) > context_tokens)
      return new Refusal(
        400,
        `This model's maximum context length is ${context_tokens} tokens. However, you requested ${asked ?? 0} output tokens and your prompt has ${tokens} input tokens. Shorten the prompt or ask for fewer output tokens.`,
        'input_tokens',
      )
  return ({ tokens }) => asked ?? Math.min(wanted.tokens_default ?? Number.POSITIVE_INFINITY, context_tokens - tokens)
}

/** The pace of a call under the settings, the orders in its headers, and what the prefix cache saves it. */
export const paceOf = (settings: DemoSettings, orders: DemoOrders, usage: Usage): Pace => {
  const rate = settings.prefill_tokens_per_s
  const prefill_ms = rate > 0 ? ((usage.prompt - usage.cached) / rate) * 1000 : 0
  return {
    ttft_ms: orders.ttft_ms + prefill_ms,
    token_ms: orders.tokens_per_s > 0 ? 1000 / orders.tokens_per_s : 0,
  }
}

const tokensOf = (plans: readonly Plan[]): number => plans.reduce((sum, plan) => sum + plan.tokens.length, 0)

const usageOf = ({ prompt, cached }: Usage, completion_tokens: number) => ({
  prompt_tokens: prompt,
  total_tokens: prompt + completion_tokens,
  completion_tokens,
  prompt_tokens_details: { cached_tokens: cached },
})

const newId = ({ shape, request }: Generation): string =>
  `${shape.id_prefix}-${request.headers.get('x-request-id') ?? crypto.randomUUID().replaceAll('-', '')}`

/** The text to echo before choice `index`. */
const beforeOf = ({ echo, prompts }: Generation, plans: readonly Plan[], index: number): string =>
  echo ? prompts[Math.floor((index * prompts.length) / plans.length)]!.text : ''

const wholeOf = (wanted: Generation, plans: readonly Plan[], usage: Usage, { now }: DemoSettings) => ({
  id: newId(wanted),
  object: wanted.shape.whole_object,
  created: Math.floor(now() / 1000),
  model: wanted.model.name,
  choices: plans.map((plan, index) => wanted.shape.whole(plan, index, wanted.top, beforeOf(wanted, plans, index))),
  usage: usageOf(usage, tokensOf(plans)),
})

const framesOf = (wanted: Generation, plans: readonly Plan[], usage: Usage, { now }: DemoSettings): Frames => {
  const { shape, top, model } = wanted
  const options = wanted.body['stream_options'] as
    { include_usage?: unknown; continuous_usage_stats?: unknown } | null | undefined
  const include = options?.include_usage === true
  const head = `data: ${JSON.stringify({ id: newId(wanted), object: shape.chunk_object, created: Math.floor(now() / 1000), model: model.name }).slice(0, -1)},"choices":[`
  let sent = 0
  const tail = () =>
    include && options.continuous_usage_stats === true
      ? `],"usage":${JSON.stringify(usageOf(usage, sent))}}\n\n`
      : ']}\n\n'
  const event = (choice: string) => (choice === '' ? '' : head + choice + tail())
  const all = (text: (plan: Plan, index: number) => string) => plans.map(text).join('')
  return {
    opening: all((plan, index) => {
      const opened = event(shape.opening(plan, index, beforeOf(wanted, plans, index)))
      return plan.tokens.length > 0 ? opened : opened + event(shape.closing(plan, index))
    }),
    steps: Math.max(...plans.map((plan) => plan.tokens.length)),
    step: (at) =>
      all((plan, index) => {
        if (at >= plan.tokens.length) return ''
        sent++
        const said = event(shape.token(plan, index, at, top))
        return at + 1 < plan.tokens.length ? said : said + event(shape.closing(plan, index))
      }),
    tokens: (at) => plans.reduce((sum, plan) => sum + (at < plan.tokens.length ? 1 : 0), 0),
    get closing() {
      const usage_chunk = include ? `${head}],"usage":${JSON.stringify(usageOf(usage, sent))}}\n\n` : ''
      return `${usage_chunk}data: [DONE]\n\n`
    },
  }
}
