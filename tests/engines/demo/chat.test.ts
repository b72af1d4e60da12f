import { afterAll, expect, test } from 'bun:test'
import { startDemoEngine } from '../../../src/engines/demo/engine.ts'
import { forAllAsync } from '../../kit/wait.ts'
import { answer, at_once, chat, post, streamed, user } from './ask.ts'

const engine = startDemoEngine({ ...at_once, now: () => 1_700_000_000_500 })
const other = startDemoEngine({ ...at_once, models: [{ name: 'another', kind: 'chat' }] })
afterAll(() => Promise.all([engine.stop(), other.stop()]))

const hi = { model: 'demo', messages: user('hi') }

test('a chat completion has the shape that clients expect', async () => {
  const whole = await answer(engine, 'chat/completions', hi)
  expect(whole).toMatchObject({
    id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'demo',
    choices: [{ index: 0, finish_reason: 'stop', stop_reason: null, logprobs: null }],
  })
  const { prompt_tokens, completion_tokens, total_tokens } = whole.usage
  // "user\nhi\n" is eight bytes.
  expect([prompt_tokens, total_tokens]).toEqual([2, 2 + completion_tokens])
  expect(whole.choices[0].message).toEqual({ role: 'assistant', content: expect.stringMatching(/^[A-Z].*\.$/) })
})

test('the text depends on prompt, seed and choice, and on nothing else', async () => {
  const text = async (at: typeof engine, body: object) => (await chat(at, body)).message.content
  const plain = await text(engine, hi)
  expect(await text(engine, { ...hi, temperature: 2, user: 'x', unknown: [1] })).toBe(plain)
  expect(await text(other, { ...hi, model: 'another' })).toBe(plain)
  expect(await text(engine, { ...hi, seed: 7 })).toBe(await text(engine, { ...hi, seed: 7 }))
  const two = await answer(engine, 'chat/completions', { ...hi, n: 2, seed: 0 })
  const said = two.choices.map((choice: any) => choice.message.content)
  const others = [await text(engine, { ...hi, seed: 7 }), await text(engine, { ...hi, messages: user('ho') })]
  expect(new Set([plain, said[1], ...others]).size).toBe(4)
  expect(said[0]).toBe(plain)
})

test('a stream says what the whole answer says, in pieces, and ends like one', async () => {
  for (const body of [hi, { ...hi, n: 3 }, { ...hi, max_tokens: 3 }, { ...hi, messages: user('echo 안녕 🌍, 안녕') }]) {
    const whole = await answer(engine, 'chat/completions', body)
    const stream = await streamed(engine, 'chat/completions', body)
    expect([stream.done, stream.ended]).toEqual([true, 'whole'])
    expect(whole.choices.map((choice: any) => stream.text(choice.index))).toEqual(
      whole.choices.map((choice: any) => choice.message.content),
    )
    expect(stream.finish().sort()).toEqual(whole.choices.map((choice: any) => choice.finish_reason).sort())
    expect(stream.usage()).toBeUndefined()
    expect(stream.chunks()[0].choices[0].delta).toEqual({ role: 'assistant', content: '' })
  }
})

test('usage is streamed once, or in every chunk, as asked', async () => {
  const whole = await answer(engine, 'chat/completions', hi)
  const once = await streamed(engine, 'chat/completions', { ...hi, stream_options: { include_usage: true } })
  expect(once.chunks().filter((chunk) => chunk.usage)).toEqual([
    expect.objectContaining({ choices: [], usage: whole.usage }),
  ])
  const stream_options = { include_usage: true, continuous_usage_stats: true }
  const always = await streamed(engine, 'chat/completions', { ...hi, stream_options })
  const counts = always.chunks().map((chunk) => chunk.usage.completion_tokens)
  expect(counts.slice(0, 3)).toEqual([0, 1, 2])
  expect(counts.at(-1)).toBe(whole.usage.completion_tokens)
  const without = await streamed(engine, 'chat/completions', { ...hi, stream_options: { include_usage: false } })
  expect(without.usage()).toBeUndefined()
})

test.each([
  ['max_tokens', { max_tokens: 5 }, 5, 'length'],
  ['max_completion_tokens before max_tokens', { max_tokens: 9, max_completion_tokens: 4 }, 4, 'length'],
  ['ignore_eos', { max_tokens: 300, ignore_eos: true }, 300, 'length'],
  ['null is absent', { max_tokens: null, stop: null, n: null, seed: null, stream: null }, undefined, 'stop'],
])('length: %s', async (_, fields, tokens, finish) => {
  const { usage, finish_reason } = await chat(engine, { ...hi, ...fields })
  expect(finish_reason).toBe(finish)
  if (tokens) expect(usage.completion_tokens).toBe(tokens)
})

test('a stop string ends the text before it, and is named', async () => {
  const full = (await chat(engine, hi)).message.content as string
  const stop = full.slice(12, 15)
  for (const fields of [{ stop }, { stop: ['nowhere at all', stop] }]) {
    const choice = await chat(engine, { ...hi, ...fields })
    expect(choice.message.content).toBe(full.slice(0, full.indexOf(stop)))
    expect([choice.finish_reason, choice.stop_reason]).toEqual(['stop', stop])
    expect((await streamed(engine, 'chat/completions', { ...hi, ...fields })).text()).toBe(choice.message.content)
  }
})

test('a partial answer is continued to the same text, wherever it stopped', () =>
  forAllAsync(40, async (roll) => {
    const messages = [...user(`question ${roll(1_000)}`)]
    const full = (await chat(engine, { model: 'demo', messages })).message.content as string
    const at = roll(full.length + 1)
    const continued = [...messages, { role: 'assistant', content: full.slice(0, at) }]
    const flags = { continue_final_message: true, add_generation_prompt: false }
    const rest = await chat(other, { model: 'another', messages: continued, ...flags })
    expect(full.slice(0, at) + rest.message.content).toBe(full)
    expect(rest.finish_reason).toBe('stop')
  }))

test('a strange partial answer is continued with something that fits on', async () => {
  const messages = [...user('hi'), { role: 'assistant', content: 'Nothing of mine' }]
  const flags = { continue_final_message: true, add_generation_prompt: false }
  expect((await chat(engine, { model: 'demo', messages, ...flags })).message.content).toMatch(/^ [A-Z].*\.$/)
  // Without the flags the assistant's message is history, and a new answer begins.
  expect((await chat(engine, { model: 'demo', messages })).message.content).toMatch(/^[A-Z].*\.$/)
})

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string' },
        unit: { enum: ['c', 'f'] },
        days: { type: 'integer', minimum: 2, maximum: 4 },
      },
      required: ['city'],
    },
  },
}

test.each([
  ['auto, and the user speaks of it', 'How is the weather?', undefined, true],
  ['auto, and the user does not', 'hi', 'auto', false],
  ['none', 'How is the weather?', 'none', false],
  ['required', 'hi', 'required', true],
  ['by name', 'hi', { type: 'function', function: { name: 'get_weather' } }, true],
])('tools: %s', async (_, content, tool_choice, calls) => {
  const body = { model: 'demo', messages: user(content), tools: [weather], tool_choice }
  const { message, finish_reason } = await chat(engine, body)
  expect(finish_reason).toBe(calls ? 'tool_calls' : 'stop')
  expect(message.tool_calls?.length ?? 0).toBe(calls ? 1 : 0)
  if (!calls) return
  const [call] = message.tool_calls
  expect(call).toMatchObject({
    id: expect.stringMatching(/^call_/),
    type: 'function',
    function: { name: 'get_weather' },
  })
  const given = JSON.parse(call.function.arguments)
  expect(given).toEqual({ city: expect.any(String), unit: expect.stringMatching(/^[cf]$/), days: expect.any(Number) })
  expect(given.days).toBeWithin(2, 5)

  const deltas = (await streamed(engine, 'chat/completions', body)).chunks().map((chunk) => chunk.choices[0].delta)
  const pieces = deltas.flatMap((delta) => delta.tool_calls ?? [])
  expect(pieces.length).toBeGreaterThan(3)
  expect([pieces[0].id, pieces[0].function.name]).toEqual([call.id, 'get_weather'])
  expect(pieces.map((piece) => piece.function.arguments).join('')).toBe(call.function.arguments)
})

test('after the result of a tool comes text', async () => {
  const { message } = await chat(engine, { model: 'demo', messages: user('weather?'), tools: [weather] })
  const messages = [
    ...user('weather?'),
    message,
    { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '12' },
  ]
  expect((await chat(engine, { model: 'demo', messages, tools: [weather] })).message.content).toMatch(/\.$/)
})

test('response_format gives JSON', async () => {
  const object = await chat(engine, { ...hi, response_format: { type: 'json_object' } })
  expect(JSON.parse(object.message.content)).toMatchObject({ answer: expect.any(String) })
  const schema = { type: 'object', properties: { a: { type: 'boolean' }, b: { type: 'array', items: { const: 3 } } } }
  const shaped = await chat(engine, { ...hi, response_format: { type: 'json_schema', json_schema: { schema } } })
  expect(JSON.parse(shaped.message.content)).toEqual({ a: expect.any(Boolean), b: [3] })
})

test('log probabilities come with every token, whole and streamed', async () => {
  const body = { ...hi, logprobs: true, top_logprobs: 2 }
  const { logprobs, usage } = await chat(engine, body)
  expect(logprobs.content.length).toBe(usage.completion_tokens)
  const [first] = logprobs.content
  expect(first.top_logprobs.length).toBe(2)
  expect(first.logprob).toBeLessThanOrEqual(0)
  expect(Buffer.from(first.bytes).toString()).toBe(first.token)
  const stream = await streamed(engine, 'chat/completions', body)
  expect(stream.chunks().flatMap((chunk) => chunk.choices[0].logprobs?.content ?? [])).toEqual(logprobs.content)
})

test('parts, tools and images count as documented', async () => {
  const parts = [
    { type: 'text', text: 'hi' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(9_000)}` } },
  ]
  expect((await chat(engine, { ...hi, messages: user(parts) })).usage.prompt_tokens).toBe(2 + 256)
  const tools_bytes = Buffer.byteLength(`${JSON.stringify([weather])}\n`)
  expect((await chat(engine, { ...hi, tools: [weather] })).usage.prompt_tokens).toBe(Math.ceil((8 + tools_bytes) / 4))
})

test('an echo gives back its own text', async () => {
  const text = 'mail  user@example.com\n now: 안녕'
  expect((await chat(engine, { ...hi, messages: user(`echo ${text}`) })).message.content).toBe(text)
})

test('plain completions take a text, token ids or lists of them', async () => {
  const one = await answer(engine, 'completions', {
    model: 'demo',
    prompt: 'Once upon a time',
    max_tokens: 4,
    echo: true,
  })
  expect(one).toMatchObject({ object: 'text_completion', usage: { prompt_tokens: 4, completion_tokens: 4 } })
  expect(one.choices[0].text).toMatch(/^Once upon a time[A-Z]/)
  const many = await answer(engine, 'completions', { model: 'demo', prompt: [[1, 2, 3], [4]], n: 2, logprobs: 1 })
  expect(many.choices.map((choice: any) => choice.index)).toEqual([0, 1, 2, 3])
  // Without a bound a completion has at most 16 tokens.
  expect(many.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 64 })
  expect(many.choices[0].logprobs.tokens.join('')).toBe(many.choices[0].text)
  const body = { model: 'demo', prompt: ['a', 'b'], max_tokens: 6, echo: true }
  const whole = await answer(engine, 'completions', body)
  const stream = await streamed(engine, 'completions', body)
  expect([stream.text(0), stream.text(1)]).toEqual(whole.choices.map((choice: any) => choice.text))
  expect([stream.done, stream.finish()]).toEqual([true, ['length', 'length']])
})

test('a client names the id of its request', async () => {
  const response = await post(engine, 'chat/completions', hi, { headers: { 'x-request-id': 'abc' } })
  expect(((await response.json()) as any).id).toBe('chatcmpl-abc')
})
