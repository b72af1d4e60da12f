import { afterAll, expect, test } from 'bun:test'
import OpenAI from 'openai'
import { startDemoEngine } from '../../../src/engines/demo/engine.ts'
import { at_once } from './ask.ts'

const engine = startDemoEngine(at_once)
afterAll(() => engine.stop())
const client = new OpenAI({ baseURL: engine.url, apiKey: 'any', maxRetries: 0 })
const messages = [{ role: 'user' as const, content: 'What is the weather in Lyon?' }]

test('the OpenAI client streams a chat and sees its usage', async () => {
  const stream = client.chat.completions.stream({ model: 'demo', messages, stream_options: { include_usage: true } })
  const final = await stream.finalChatCompletion()
  const whole = await client.chat.completions.create({ model: 'demo', messages })
  expect(final.choices[0]?.message.content).toBe(whole.choices[0]?.message.content ?? '')
  expect(final.usage?.total_tokens).toBe(whole.usage!.total_tokens)
})

test('the OpenAI client assembles a streamed tool call', async () => {
  const parameters = { type: 'object', properties: { city: { type: 'string' } } }
  const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters } }]
  const final = await client.chat.completions.stream({ model: 'demo', messages, tools }).finalChatCompletion()
  const [call] = final.choices[0]!.message.tool_calls!
  expect(call?.type === 'function' && JSON.parse(call.function.arguments)).toEqual({ city: expect.any(String) })
})

test('the OpenAI client reads embeddings, models and errors', async () => {
  // The client asks for base64 by itself and decodes it.
  const { data } = await client.embeddings.create({ model: 'demo-embed', input: 'a river' })
  expect(data[0]?.embedding.length).toBe(384)
  expect((await client.models.list()).data.map((model) => model.id)).toEqual(['demo', 'demo-embed'])
  // The client's promise is lazy: only `then` and `catch` start the call.
  const refused = client.chat.completions.create({ model: 'nope', messages }).catch((cause: unknown) => cause)
  expect(await refused).toMatchObject({ status: 404, param: 'model' })
})
