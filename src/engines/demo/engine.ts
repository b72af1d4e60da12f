import { embed, readPrompts } from './embeddings.ts'
import { generate } from './generate.ts'
import { modelState, renderMetrics, type ModelState } from './metrics.ts'
import { chatPrompt } from './prompt.ts'
import { Refusal } from './refusal.ts'
import { readBody, readMessages, readTools, type Body } from './request.ts'
import { demo_defaults, demo_limits, ordersOf, type DemoOrders, type DemoSettings } from './settings.ts'
import { chatShape, textShape } from './shape.ts'

/** What happened so far, over all models. */
export type DemoStats = {
  readonly running: number
  readonly running_max: number
  readonly waiting: number
  /** Calls that ended, by reason. */
  readonly finished: Readonly<Record<'stop' | 'length' | 'abort' | 'error', number>>
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly generation_tokens: number
}

export type DemoEngine = {
  /** `http://host:port/v1`, as an engine's `url` in the configuration. */
  readonly url: string
  readonly port: number
  /** Stops listening and breaks what is open. */
  stop(): Promise<void>
  stats(): DemoStats
}

type Answer = Response | Promise<Response>
type Endpoint = (request: Request, body: Body, model: ModelState, orders: DemoOrders) => Answer

/**
 * Starts an engine that behaves like a vLLM server and says pleasant, reproducible things about a river. Answers depend
 * on the prompt, `seed` and `n` alone, so any two demo engines give the same one. Prompts are counted as `prompt.ts`
 * says; a completion counts its pieces, one a word. A user message that starts with `echo ` is answered with its rest.
 */
export const startDemoEngine = (given: Partial<DemoSettings> = {}): DemoEngine => {
  const settings = { ...demo_defaults, ...given }
  const models = settings.models.map((model) => modelState(model, settings))
  const endpoints = endpointsOf(settings)
  const post = (kind: ModelState['kind'], endpoint: Endpoint) => ({
    POST: async (request: Request): Promise<Response> => {
      const body = readBody(await request.text())
      if (body instanceof Refusal) return body.response()
      const model = modelFor(models, kind, body['model'])
      if (model instanceof Refusal) return model.response()
      const orders = ordersOf(request.headers, settings)
      if (orders.status === undefined) return await endpoint(request, body, model, orders)
      model.finished.error++
      return new Refusal(orders.status, `Status ${orders.status} by order of x-demo-status.`).response()
    },
  })
  const server = Bun.serve({
    port: settings.port,
    hostname: settings.host,
    development: false,
    maxRequestBodySize: demo_limits.body_bytes_max,
    // A slow stream is the client's wish here; what it can hold is bounded by capacity and queue.
    idleTimeout: 0,
    routes: {
      '/health': { GET: () => new Response(null) },
      '/metrics': { GET: () => metricsAnswer(models, settings) },
      '/v1/models': {
        GET: () => Response.json({ object: 'list', data: models.map((model) => card(model, settings)) }),
      },
      '/v1/chat/completions': post('chat', endpoints.chat),
      '/v1/completions': post('chat', endpoints.completions),
      '/v1/embeddings': post('embedding', endpoints.embeddings),
    },
    fetch: (request) => new Refusal(404, `No ${request.method} at this address.`).response(),
    error: (cause) => new Refusal(500, cause.message).response(),
  })
  return {
    url: `http://${settings.host}:${server.port}/v1`,
    port: server.port!,
    stop: () => server.stop(true),
    stats: () => statsOf(models),
  }
}

const endpointsOf = (settings: DemoSettings) =>
  ({
    chat: (request, body, model, orders) => {
      const messages = readMessages(body)
      if (messages instanceof Refusal) return messages.response()
      const tools = readTools(body)
      if (tools instanceof Refusal) return tools.response()
      if (body['top_logprobs'] && body['logprobs'] !== true)
        return new Refusal(400, 'top_logprobs needs logprobs to be true.', 'top_logprobs').response()
      const offered = tools.length > 0 ? body['tools'] : undefined
      const prompt = chatPrompt(messages, offered, body['continue_final_message'] === true)
      const top = body['logprobs'] === true ? ((body['top_logprobs'] as number | null | undefined) ?? 0) : undefined
      const common = { request, body, model, shape: chatShape, echo: false, tokens_default: undefined }
      return generate({ ...common, prompts: [prompt], tools, top }, settings, orders)
    },
    completions: (request, body, model, orders) => {
      const prompts = readPrompts(body['prompt'], 'prompt', demo_limits.prompts_max)
      if (prompts instanceof Refusal) return prompts.response()
      if (body['suffix']) return new Refusal(400, 'suffix is not supported.', 'suffix').response()
      const logprobs = body['logprobs'] ?? undefined
      if (
        logprobs !== undefined &&
        !(Number.isInteger(logprobs) && (logprobs as number) >= 0 && (logprobs as number) <= 20)
      )
        return new Refusal(400, 'logprobs must be an integer from 0 to 20.', 'logprobs').response()
      const common = { request, body, model, shape: textShape, tools: [], tokens_default: 16 }
      const top = logprobs as number | undefined
      return generate({ ...common, prompts, top, echo: body['echo'] === true }, settings, orders)
    },
    embeddings: (request, body, model, orders) => embed(request, body, model, settings, orders),
  }) satisfies Record<string, Endpoint>

/** The named model, or the first of its kind if none is named. */
const modelFor = (models: readonly ModelState[], kind: ModelState['kind'], name: unknown): ModelState | Refusal => {
  const named = name === undefined || name === null
  const model = models.find((model) => (named ? model.kind === kind : model.name === name))
  if (!model) return new Refusal(404, `The model \`${String(name).slice(0, 256)}\` does not exist.`, 'model')
  if (model.kind === kind) return model
  return new Refusal(400, `The model \`${model.name}\` does not support this address.`, 'model')
}

const card = ({ name }: ModelState, { now, context_tokens }: DemoSettings) => ({
  id: name,
  object: 'model',
  created: Math.floor(now() / 1000),
  owned_by: 'weir-demo',
  root: name,
  parent: null,
  max_model_len: context_tokens,
  permission: [],
})

const metricsAnswer = (models: readonly ModelState[], { kv_cache_tokens }: DemoSettings): Response =>
  new Response(renderMetrics(models, kv_cache_tokens), {
    headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
  })

const statsOf = (models: readonly ModelState[]): DemoStats => {
  const sum = (value: (model: ModelState) => number) => models.reduce((total, model) => total + value(model), 0)
  return {
    running: sum((model) => model.slots.running),
    running_max: sum((model) => model.slots.running_max),
    waiting: sum((model) => model.slots.waiting),
    finished: {
      stop: sum((model) => model.finished.stop),
      length: sum((model) => model.finished.length),
      abort: sum((model) => model.finished.abort),
      error: sum((model) => model.finished.error),
    },
    prompt_tokens: sum((model) => model.prompt_tokens),
    cached_tokens: sum((model) => model.prefix_hits),
    generation_tokens: sum((model) => model.generation_tokens),
  }
}
