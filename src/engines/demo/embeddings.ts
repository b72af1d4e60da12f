import type { ModelState } from './metrics.ts'
import { plainPrompt, type Prompt } from './prompt.ts'
import { Refusal } from './refusal.ts'
import type { Body } from './request.ts'
import { answerWhole, enter } from './run.ts'
import { demo_limits, type DemoOrders, type DemoSettings } from './settings.ts'

/** `/v1/embeddings`: one vector an input, as numbers or as base64 of little-endian float32. */
export const embed = (
  request: Request,
  body: Body,
  model: ModelState,
  settings: DemoSettings,
  orders: DemoOrders,
): Response | Promise<Response> => {
  const prompts = readPrompts(body['input'], 'input', demo_limits.inputs_max)
  if (prompts instanceof Refusal) return prompts.response()
  const dimensions = body['dimensions'] ?? demo_limits.dimensions
  if (
    !Number.isInteger(dimensions) ||
    (dimensions as number) < 1 ||
    (dimensions as number) > demo_limits.dimensions_max
  )
    return new Refusal(
      400,
      `dimensions must be an integer from 1 to ${demo_limits.dimensions_max}.`,
      'dimensions',
    ).response()
  const format = body['encoding_format'] ?? 'float'
  if (format !== 'float' && format !== 'base64')
    return new Refusal(400, 'encoding_format must be float or base64.', 'encoding_format').response()
  const long = prompts.find((prompt) => prompt.tokens > settings.context_tokens)
  if (long)
    return new Refusal(
      400,
      `This model's maximum context length is ${settings.context_tokens} tokens. However, an input has ${long.tokens} tokens.`,
      'input_tokens',
    ).response()
  const prompt_tokens = prompts.reduce((sum, prompt) => sum + prompt.tokens, 0)
  const run = enter(model, prompt_tokens)
  if (run instanceof Refusal) return run.response()
  const render = () =>
    Response.json({
      id: `embd-${crypto.randomUUID().replaceAll('-', '')}`,
      object: 'list',
      created: Math.floor(settings.now() / 1000),
      model: model.name,
      data: prompts.map((prompt, index) => {
        const vector = vectorOf(prompt.text, dimensions as number)
        const embedding = format === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector]
        return { index, object: 'embedding', embedding }
      }),
      usage: { prompt_tokens, total_tokens: prompt_tokens, completion_tokens: 0, prompt_tokens_details: null },
    })
  return answerWhole(run, request, {
    ttft_ms: orders.ttft_ms,
    total_ms: orders.ttft_ms,
    tokens: 0,
    reason: 'stop',
    render,
  })
}

/** A text, a list of texts, a list of token ids or a list of such lists, as prompts. */
export const readPrompts = (value: unknown, field: string, most: number): readonly Prompt[] | Refusal => {
  const isIds = (list: unknown): list is readonly number[] =>
    Array.isArray(list) && list.length > 0 && list.every(Number.isInteger)
  if (typeof value === 'string' || isIds(value)) return [plainPrompt(value)]
  const fault = new Refusal(
    400,
    `${field} must be a string, a list of token ids, or a list of 1 to ${most} of either.`,
    field,
  )
  if (!Array.isArray(value) || value.length === 0 || value.length > most) return fault
  const prompts: Prompt[] = []
  for (const item of value as unknown[]) {
    if (typeof item !== 'string' && !isIds(item)) return fault
    prompts.push(plainPrompt(item))
  }
  return prompts
}

/**
 * A unit vector in which texts that share words lie near each other: each word, and each group of four letters with
 * less weight, adds to four places that its hash names. The same text gives the same vector.
 */
export const vectorOf = (text: string, dimensions: number): Float32Array => {
  const vector = new Float32Array(dimensions)
  const add = (feature: string, weight: number) => {
    let hash = Bun.hash.xxHash32(feature)
    for (let place = 0; place < 4; place++) {
      vector[(hash >>> 1) % dimensions]! += hash & 1 ? weight : -weight
      hash = (Math.imul(hash, 0x85ebca6b) ^ (hash >>> 13)) >>> 0
    }
  }
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []) {
    add(word, 1)
    for (let at = 0; at + 4 < word.length; at++) add(word.slice(at, at + 4), 0.3)
  }
  const length = lengthOf(vector)
  if (length === 0) vector[0] = 1
  else for (let at = 0; at < dimensions; at++) vector[at]! /= length
  return vector
}

const lengthOf = (vector: Float32Array): number => {
  let sum = 0
  for (const part of vector) sum += part * part
  return Math.sqrt(sum)
}
