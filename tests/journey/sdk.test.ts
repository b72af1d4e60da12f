import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { embedMany, generateText, jsonSchema, streamText, tool } from 'ai'
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import OpenAI from 'openai'
import { DEMO_KEY, startHouse, type TestHouse } from '../kit/house.ts'
import { eventually } from '../kit/wait.ts'

/** The official OpenAI client and Vercel's AI SDK against a house with nothing configured: the demo engine serves. */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

let house: TestHouse
let client: OpenAI
const clientOf = (apiKey: string, maxRetries = 0) => new OpenAI({ baseURL: `${house.url}/v1`, apiKey, maxRetries })
beforeAll(async () => {
  house = await startHouse({ workers: 2 })
  client = clientOf(DEMO_KEY)
})
afterAll(() => house[Symbol.asyncDispose]())

const messages = [{ role: 'user' as const, content: 'echo Under the bridge the river goes on.' }]
const SAID = 'Under the bridge the river goes on.'
const parameters = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
}
const tools = [{ type: 'function' as const, function: { name: 'get_weather', description: 'Weather.', parameters } }]
const weather = [{ role: 'user' as const, content: 'What is the weather in Lyon?' }]

/** The row of a call by its id. */
const rowOf = (id: string | null) =>
  eventually(() => {
    const row = house.rows().find((found) => found['id'] === id)
    if (row === undefined) throw new Error(`no row ${id}`)
    return row
  }, 5_000)

test('OpenAI: a chat, priced and in the ledger under the id of its answer', async () => {
  const { data, response } = await client.chat.completions.create({ model: 'demo', messages }).withResponse()
  expect(data.object).toBe('chat.completion')
  expect(data.choices[0]).toMatchObject({ message: { role: 'assistant', content: SAID }, finish_reason: 'stop' })
  expect(data.usage!.total_tokens).toBe(data.usage!.prompt_tokens + data.usage!.completion_tokens)
  const row = await rowOf(response.headers.get('x-weir-call-id'))
  expect(row).toMatchObject({
    tenant: 'demo',
    model: 'demo',
    endpoint: '/v1/chat/completions',
    ending: 'whole',
    finish_reason: 'stop',
    usage_source: 'engine',
  })
  expect(Number(row['prompt_tokens'])).toBe(data.usage!.prompt_tokens)
  expect(Number(row['completion_tokens'])).toBe(data.usage!.completion_tokens)
  const charge = Number(row['charge_nanodollars'])
  expect(charge).toBeGreaterThan(0)
  expect(Number(response.headers.get('x-weir-cost-usd'))).toBeCloseTo(charge / 1e9, 12)
})

test('OpenAI: a streamed chat with include_usage', async () => {
  const stream_options = { include_usage: true }
  const asked = client.chat.completions.create({ model: 'demo', messages, stream: true, stream_options })
  const { data: stream, response } = await asked.withResponse()
  let text = ''
  const usages: unknown[] = []
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? ''
    if (chunk.usage) usages.push(chunk.usage)
  }
  expect(text).toBe(SAID)
  expect(usages).toHaveLength(1)
  const row = await rowOf(response.headers.get('x-weir-call-id'))
  expect(usages[0]).toMatchObject({
    prompt_tokens: Number(row['prompt_tokens']),
    completion_tokens: Number(row['completion_tokens']),
  })
})

test('OpenAI: without include_usage the client sees none, and the ledger has it all the same', async () => {
  const { data: stream, response } = await client.chat.completions
    .create({ model: 'demo', messages, stream: true })
    .withResponse()
  let chunks = 0
  for await (const chunk of stream) {
    expect(chunk.usage ?? null).toBeNull()
    expect(chunk.choices).toHaveLength(1)
    chunks++
  }
  expect(chunks).toBeGreaterThan(2)
  expect(await rowOf(response.headers.get('x-weir-call-id'))).toMatchObject({ usage_source: 'engine', ending: 'whole' })
})

test('OpenAI: tools, whole and assembled from a stream, and their result', async () => {
  const whole = await client.chat.completions.create({ model: 'demo', messages: weather, tools })
  const streamed = await client.chat.completions
    .stream({ model: 'demo', messages: weather, tools })
    .finalChatCompletion()
  for (const answer of [whole, streamed]) {
    expect(answer.choices[0]!.finish_reason).toBe('tool_calls')
    const [called] = answer.choices[0]!.message.tool_calls!
    if (called?.type !== 'function') throw new Error('no function was called')
    expect(called.function.name).toBe('get_weather')
    expect(JSON.parse(called.function.arguments)).toEqual({ city: expect.any(String) })
  }
  const { message } = whole.choices[0]!
  const result = { role: 'tool' as const, tool_call_id: message.tool_calls![0]!.id, content: 'rain' }
  const after = await client.chat.completions.create({ model: 'demo', messages: [...weather, message, result], tools })
  expect(after.choices[0]!.message.content).toBeString()
})

test('OpenAI: completions, whole and streamed', async () => {
  const asked = { model: 'demo', prompt: 'Once upon a time', max_tokens: 8 }
  const whole = await client.completions.create(asked)
  let text = ''
  for await (const chunk of await client.completions.create({ ...asked, stream: true }))
    text += chunk.choices[0]?.text ?? ''
  expect(text).toBe(whole.choices[0]!.text)
  expect(whole.usage?.completion_tokens).toBe(8)
})

test('OpenAI: embeddings, as floats and as base64, are the same vectors', async () => {
  const asked = { model: 'demo-embed', input: ['a river', 'a dam'] }
  const floats = await client.embeddings.create({ ...asked, encoding_format: 'float' })
  const decoded = await client.embeddings.create(asked) // The client asks for base64 by itself and decodes it.
  const packed = await client.embeddings.create({ ...asked, encoding_format: 'base64' })
  expect(floats.data).toHaveLength(2)
  for (const [index, { embedding }] of floats.data.entries()) {
    const bytes = Buffer.from(packed.data[index]!.embedding as unknown as string, 'base64')
    const unpacked = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(at * 4))
    expect(unpacked).toHaveLength(embedding.length)
    for (const [at, value] of embedding.entries()) {
      expect(unpacked[at]!).toBeCloseTo(value, 5)
      expect(decoded.data[index]!.embedding[at]!).toBeCloseTo(value, 5)
    }
  }
})

test('OpenAI: the list of models, one model, and one that is not there', async () => {
  const listed = await client.models.list()
  expect(listed.data.map(({ id }) => id)).toEqual(['demo', 'demo-embed'])
  expect(await client.models.retrieve('demo')).toMatchObject({ id: 'demo', object: 'model' })
  await expect(refusal(client.models.retrieve('nope'))).resolves.toMatchObject({ status: 404, code: 'model_unknown' })
})

/** What a call is refused with. The client's promise is lazy: only `then` starts the call. */
const refusal = async (call: PromiseLike<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> => {
  try {
    await call
  } catch (cause) {
    if (cause instanceof OpenAI.APIError) return cause
    throw cause
  }
  throw new Error('the call was not refused')
}

test('OpenAI: a wrong key is an AuthenticationError', async () => {
  const refused = await refusal(clientOf('nope').chat.completions.create({ model: 'demo', messages }))
  expect(refused).toBeInstanceOf(OpenAI.AuthenticationError)
  expect(refused).toMatchObject({ status: 401, code: 'key_invalid', type: 'authentication_error' })
})

test('OpenAI: an unknown model is a NotFoundError, streamed or not', async () => {
  for (const stream of [true, false]) {
    const refused = await refusal(client.chat.completions.create({ model: 'nope', messages, stream }))
    expect(refused).toBeInstanceOf(OpenAI.NotFoundError)
    expect(refused).toMatchObject({ status: 404, code: 'model_unknown', param: 'model' })
  }
})

test('OpenAI: a mistake in the request is a BadRequestError of the engine', async () => {
  const refused = await refusal(client.chat.completions.create({ model: 'demo', messages: [] }))
  expect(refused).toBeInstanceOf(OpenAI.BadRequestError)
  expect(refused.param).toBe('messages')
})

test('OpenAI: 429 with Retry-After; with retries on the client waits for it and gets its answer', async () => {
  const key = await house.key('demo', { requests_per_minute: 60 })
  const limited = clientOf(key)
  const ask = (from: OpenAI) => from.chat.completions.create({ model: 'demo', messages, max_tokens: 1 })
  let refused: InstanceType<typeof OpenAI.APIError> | undefined
  while (refused === undefined) {
    const burst = await Promise.allSettled(Array.from({ length: 61 }, () => ask(limited)))
    for (const result of burst) if (result.status === 'rejected') refused = result.reason as typeof refused
  }
  expect(refused).toBeInstanceOf(OpenAI.RateLimitError)
  expect(refused).toMatchObject({ status: 429, code: 'rate_exceeded', type: 'rate_limit_error' })
  expect(refused.headers!.get('retry-after')).toBe('1')
  expect(refused.headers!.get('x-ratelimit-limit-requests')).toBe('60')
  expect((await ask(clientOf(key, 3))).object).toBe('chat.completion')
})

test('OpenAI: an abort ends the stream, the engine, and the row', async () => {
  const controller = new AbortController()
  const asked = { model: 'demo', messages: weather, stream: true as const, max_tokens: 20_000, ignore_eos: true }
  const { data: stream, response } = await client.chat.completions
    .create(asked, { signal: controller.signal })
    .withResponse()
  let chunks = 0
  for await (const _ of stream) if (++chunks === 5) controller.abort()
  expect(chunks).toBeLessThan(100)
  const row = await rowOf(response.headers.get('x-weir-call-id'))
  expect(row).toMatchObject({ ending: 'cut_by_client', stream: 1 })
  expect(Number(row['completion_tokens'])).toBeGreaterThan(0)
  expect(Number(row['completion_tokens'])).toBeLessThan(2_000)
})

const provider = () =>
  createOpenAICompatible({ name: 'weir', baseURL: `${house.url}/v1`, apiKey: DEMO_KEY, includeUsage: true })
const prompt = 'echo Under the bridge the river goes on.'

test('AI SDK: generateText', async () => {
  const { text, finishReason, usage } = await generateText({
    model: provider().chatModel('demo'),
    prompt,
    maxRetries: 0,
  })
  expect([text, finishReason]).toEqual([SAID, 'stop'])
  expect(usage.outputTokens).toBeGreaterThan(0)
  expect(usage.inputTokens).toBeGreaterThan(0)
})

test('AI SDK: streamText', async () => {
  const result = streamText({ model: provider().chatModel('demo'), prompt, maxRetries: 0 })
  const pieces: string[] = []
  for await (const piece of result.textStream) pieces.push(piece)
  expect(pieces.join('')).toBe(SAID)
  expect(pieces.length).toBeGreaterThan(1)
  expect(await result.finishReason).toBe('stop')
  expect((await result.usage).outputTokens).toBeGreaterThan(0)
})

test('AI SDK: a tool is called', async () => {
  const { toolCalls, finishReason } = await generateText({
    model: provider().chatModel('demo'),
    prompt: 'What is the weather in Lyon?',
    tools: { get_weather: tool({ description: 'Weather.', inputSchema: jsonSchema<{ city: string }>(parameters) }) },
    maxRetries: 0,
  })
  expect(finishReason).toBe('tool-calls')
  expect(toolCalls[0]).toMatchObject({ toolName: 'get_weather', input: { city: expect.any(String) } })
})

test('AI SDK: embeddings', async () => {
  const { embeddings } = await embedMany({
    model: provider().textEmbeddingModel('demo-embed'),
    values: ['a river', 'a dam'],
    maxRetries: 0,
  })
  expect(embeddings.map(({ length }) => length)).toEqual([384, 384])
})

test('AI SDK: a wrong key is told as it is', async () => {
  const wrong = createOpenAICompatible({ name: 'weir', baseURL: `${house.url}/v1`, apiKey: 'nope' })
  const asked = generateText({ model: wrong.chatModel('demo'), prompt, maxRetries: 0 }).catch((cause: unknown) => cause)
  expect(await asked).toMatchObject({ statusCode: 401, message: 'The API key is not valid.' })
})

test('every call that the clients made has one row, and none was the house’s fault', async () => {
  const rows = house.rows()
  expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length)
  expect(house.logged('internal_error')).toEqual([])
})
