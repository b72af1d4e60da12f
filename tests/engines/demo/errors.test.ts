import { afterAll, expect, test } from 'bun:test'
import { startDemoEngine } from '../../../src/engines/demo/engine.ts'
import { at_once, post, user } from './ask.ts'

const engine = startDemoEngine({ ...at_once, context_tokens: 100 })
afterAll(() => engine.stop())

const long = 'x'.repeat(400)
const chat = (fields: object) => ({ model: 'demo', messages: user('hi'), ...fields })
const tool = { type: 'function', function: { name: 'f' } }

test.each([
  ['chat/completions', '{"model":', 400, null],
  ['chat/completions', '[]', 400, null],
  ['chat/completions', '"x"', 400, null],
  ['chat/completions', {}, 400, 'messages'],
  ['chat/completions', chat({ model: 'nope' }), 404, 'model'],
  ['chat/completions', chat({ model: 5 }), 404, 'model'],
  ['chat/completions', chat({ model: 'demo-embed' }), 400, 'model'],
  ['chat/completions', chat({ messages: [] }), 400, 'messages'],
  ['chat/completions', chat({ messages: 'hi' }), 400, 'messages'],
  ['chat/completions', chat({ messages: ['hi'] }), 400, 'messages'],
  ['chat/completions', chat({ messages: [{ role: 'king', content: 'a' }] }), 400, 'messages'],
  ['chat/completions', chat({ messages: [{ role: 'user' }] }), 400, 'messages'],
  ['chat/completions', chat({ messages: [{ role: 'user', content: 5 }] }), 400, 'messages'],
  ['chat/completions', chat({ max_tokens: 0 }), 400, 'max_tokens'],
  ['chat/completions', chat({ max_tokens: 1.5 }), 400, 'max_tokens'],
  ['chat/completions', chat({ temperature: -1 }), 400, 'temperature'],
  ['chat/completions', chat({ n: 1_000 }), 400, 'n'],
  ['chat/completions', chat({ stream: 'yes' }), 400, 'stream'],
  ['chat/completions', chat({ stop: [1] }), 400, 'stop'],
  ['chat/completions', chat({ stream_options: { include_usage: true } }), 400, 'stream_options'],
  ['chat/completions', chat({ top_logprobs: 2 }), 400, 'top_logprobs'],
  ['chat/completions', chat({ tools: [{}] }), 400, 'tools'],
  ['chat/completions', chat({ tool_choice: 'required' }), 400, 'tool_choice'],
  ['chat/completions', chat({ tools: [tool], tool_choice: 'perhaps' }), 400, 'tool_choice'],
  ['chat/completions', chat({ tools: [tool], tool_choice: { function: { name: 'g' } } }), 400, 'tool_choice'],
  ['chat/completions', chat({ continue_final_message: true }), 400, 'continue_final_message'],
  ['chat/completions', chat({ continue_final_message: true, add_generation_prompt: false }), 400, 'messages'],
  ['chat/completions', chat({ messages: user(long) }), 400, 'input_tokens'],
  ['chat/completions', chat({ max_tokens: 99 }), 400, 'input_tokens'],
  ['completions', { model: 'demo' }, 400, 'prompt'],
  ['completions', { model: 'demo', prompt: [] }, 400, 'prompt'],
  ['completions', { model: 'demo', prompt: [1, 'a'] }, 400, 'prompt'],
  ['completions', { model: 'demo', prompt: 'a', suffix: 'b' }, 400, 'suffix'],
  ['completions', { model: 'demo', prompt: 'a', logprobs: 50 }, 400, 'logprobs'],
  ['completions', { model: 'demo', prompt: ['a', long], max_tokens: 1 }, 400, 'input_tokens'],
  ['embeddings', { model: 'demo', input: 'a' }, 400, 'model'],
  ['embeddings', { model: 'demo-embed' }, 400, 'input'],
  ['embeddings', { model: 'demo-embed', input: 'a', dimensions: 0 }, 400, 'dimensions'],
  ['embeddings', { model: 'demo-embed', input: 'a', encoding_format: 'hex' }, 400, 'encoding_format'],
  ['embeddings', { model: 'demo-embed', input: `${long}x` }, 400, 'input_tokens'],
  ['nowhere', {}, 404, null],
])('%s %j → %i about %p', async (address, body, status, param) => {
  const response = await post(engine, address, body)
  expect(response.status).toBe(status)
  const { error } = (await response.json()) as any
  expect(error).toEqual({
    message: expect.stringMatching(/\w/),
    type: status === 404 ? 'NotFoundError' : 'BadRequestError',
    param,
    code: status,
  })
})

test('the context error names the limit in the words that gateways look for', async () => {
  const { error } = (await (await post(engine, 'chat/completions', chat({ max_tokens: 99 }))).json()) as any
  expect(error.message).toContain("This model's maximum context length is 100 tokens.")
})

test('a prompt that just fits is answered up to the end of the context', async () => {
  // "user\n" + 390 + "\n" are 396 bytes: 99 tokens.
  const response = await post(engine, 'chat/completions', chat({ messages: user('x'.repeat(390)) }))
  const body = (await response.json()) as any
  expect([body.usage.total_tokens, body.choices[0].finish_reason]).toEqual([100, 'length'])
})

test('a status by order', async () => {
  for (const [ordered, found] of [
    ['503', 503],
    ['429', 429],
    ['500', 500],
    ['200', 200],
    ['abc', 200],
  ] as const) {
    const response = await post(engine, 'chat/completions', chat({}), { headers: { 'x-demo-status': ordered } })
    expect(response.status).toBe(found)
    expect(response.headers.get('retry-after')).toBe(found === 503 || found === 429 ? '1' : null)
    await response.text()
  }
})

test('only the methods and addresses that there are', async () => {
  const base = engine.url.slice(0, -3)
  const statuses = await Promise.all([
    fetch(`${base}/health`),
    fetch(`${base}/v1/models`),
    fetch(`${base}/v1/chat/completions`),
    fetch(`${base}/health`, { method: 'POST' }),
    fetch(`${base}/`),
  ])
  expect(statuses.map((response) => response.status)).toEqual([200, 200, 404, 404, 404])
  const models = (await statuses[1]!.json()) as any
  expect(models.object).toBe('list')
  expect(models.data.map((model: any) => [model.id, model.object, model.max_model_len])).toEqual([
    ['demo', 'model', 100],
    ['demo-embed', 'model', 100],
  ])
})
