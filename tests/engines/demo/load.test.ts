import { expect, test } from 'bun:test'
import { startDemoEngine, type DemoEngine } from '../../../src/engines/demo/engine.ts'
import type { DemoSettings } from '../../../src/engines/demo/settings.ts'
import { connectRaw, requestBytes } from '../../kit/raw-client.ts'
import { eventually } from '../../kit/wait.ts'
import { answer, at_once, metric, post, streamed, user } from './ask.ts'

const hi = { model: 'demo', messages: user('hi') }
const started = (settings: Partial<DemoSettings>): DemoEngine & AsyncDisposable => {
  const engine = startDemoEngine(settings)
  return { ...engine, [Symbol.asyncDispose]: engine.stop }
}
const slow = { 'x-demo-ttft-ms': '60000' }

test('as many run as there are slots, the rest waits, and all are answered', async () => {
  await using engine = started({ ttft_ms: 20, tokens_per_s: 0, capacity: 2 })
  const calls = Array.from({ length: 7 }, () => answer(engine, 'chat/completions', hi))
  await eventually(async () => {
    expect(engine.stats()).toMatchObject({ running: 2, waiting: 5 })
  })
  expect(await metric(engine, 'vllm:num_requests_running', 'model_name="demo"')).toBe(2)
  expect(await metric(engine, 'vllm:num_requests_waiting', 'model_name="demo"')).toBeGreaterThan(0)
  await Promise.all(calls)
  expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, running_max: 2, finished: { stop: 7, abort: 0 } })
})

test('a full queue refuses', async () => {
  await using engine = started({ ttft_ms: 60_000, capacity: 1, queue_max: 1 })
  const gone = new AbortController()
  const { signal } = gone
  const held = [1, 2].map(() => post(engine, 'chat/completions', hi, { signal }).catch(() => undefined))
  await eventually(() => engine.stats().waiting === 1)
  expect((await post(engine, 'chat/completions', hi)).status).toBe(503)
  gone.abort()
  await Promise.all(held)
  await eventually(() => expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, finished: { abort: 2 } }))
})

test.each([
  ['before the first token of a stream', { stream: true }, slow, 'running'],
  ['between the tokens of a stream', { stream: true, ignore_eos: true }, { 'x-demo-tokens-per-s': '1' }, 'running'],
  ['before a whole answer', {}, slow, 'running'],
  ['before an embedding', { model: 'demo-embed', input: 'a' }, slow, 'running'],
  ['in the queue, a stream', { stream: true }, slow, 'waiting'],
  ['in the queue, a whole answer', {}, slow, 'waiting'],
] as const)('a client that leaves frees its place at once: %s', async (_, fields, headers, place) => {
  await using engine = started({ ttft_ms: 0, capacity: place === 'waiting' ? 1 : 9, tokens_per_s: 0 })
  const blocker = new AbortController()
  const blocked = post(engine, 'chat/completions', hi, { headers: slow, signal: blocker.signal }).catch(() => undefined)
  await eventually(() => engine.stats().running === 1)
  const address = 'input' in fields ? '/v1/embeddings' : '/v1/chat/completions'
  for (const how of ['close', 'reset'] as const) {
    using client = await connectRaw(engine.port)
    await client.send(requestBytes('POST', address, headers, { ...hi, ...fields }))
    const others = place === 'waiting' ? 0 : 1
    await eventually(() => engine.stats()[place] === 1 + others)
    if ('ignore_eos' in fields) await client.received(200)
    client[how]()
    await eventually(() => engine.stats()[place] === others)
  }
  expect(engine.stats().finished.abort).toBe(2)
  blocker.abort()
  await blocked
  await eventually(async () => expect(await metric(engine, 'vllm:kv_cache_usage_perc')).toBe(0))
})

test('the one who waits gets the place of the one who left', async () => {
  await using engine = started({ ...at_once, capacity: 1 })
  const gone = new AbortController()
  const first = post(engine, 'chat/completions', hi, { headers: slow, signal: gone.signal }).catch(() => undefined)
  await eventually(() => engine.stats().running === 1)
  const second = answer(engine, 'chat/completions', hi)
  await eventually(() => engine.stats().waiting === 1)
  gone.abort()
  expect((await second).choices[0].finish_reason).toBe('stop')
  await first
})

test('figures move with what was done', async () => {
  await using engine = started(at_once)
  const usage = (await answer(engine, 'chat/completions', { ...hi, max_tokens: 5 })).usage
  await streamed(engine, 'chat/completions', { ...hi, ignore_eos: true, max_tokens: 20 })
  await post(engine, 'chat/completions', hi, { headers: { 'x-demo-status': '500' } })
  const demo = 'model_name="demo"'
  expect(await metric(engine, 'vllm:prompt_tokens_total', demo)).toBe(2 * usage.prompt_tokens)
  expect(await metric(engine, 'vllm:generation_tokens_total', demo)).toBe(25)
  expect(await metric(engine, 'vllm:request_success_total', demo, 'length')).toBe(2)
  expect(await metric(engine, 'vllm:request_success_total', demo, 'error')).toBe(1)
  expect(await metric(engine, 'vllm:time_to_first_token_seconds_count', demo)).toBe(2)
  expect(await metric(engine, 'vllm:time_to_first_token_seconds_bucket', demo, '"+Inf"')).toBe(2)
  expect(await metric(engine, 'vllm:inter_token_latency_seconds_count', demo)).toBe(4 + 19)
  expect(await metric(engine, 'vllm:e2e_request_latency_seconds_count', demo)).toBe(2)
})

test('running calls fill the key-value cache, and leave it', async () => {
  await using engine = started({ ttft_ms: 60_000, kv_cache_tokens: 1_000 })
  const gone = new AbortController()
  const body = { model: 'demo', messages: user('x'.repeat(994)) }
  const held = [1, 2].map(() => post(engine, 'chat/completions', body, { signal: gone.signal }).catch(() => undefined))
  await eventually(async () => expect(await metric(engine, 'vllm:kv_cache_usage_perc', '"demo"')).toBe(0.5))
  gone.abort()
  await Promise.all(held)
  await eventually(async () => expect(await metric(engine, 'vllm:kv_cache_usage_perc', '"demo"')).toBe(0))
})

test('a prompt that begins like an earlier one is cached by whole blocks, until newer ones push it out', async () => {
  await using engine = started({ ...at_once, kv_cache_tokens: 1_600 })
  const cached = async (text: string) =>
    (await answer(engine, 'completions', { model: 'demo', prompt: text, max_tokens: 1 })).usage.prompt_tokens_details
      .cached_tokens
  const base = 'river '.repeat(40)
  expect(await cached(base)).toBe(0)
  // 240 bytes: three whole blocks of 64 bytes, 16 tokens each.
  expect(await cached(base)).toBe(48)
  expect(await cached(`${base}and more`)).toBe(48)
  expect(await cached(`x${base}`)).toBe(0)
  expect(await metric(engine, 'vllm:prefix_cache_hits_total', '"demo"')).toBe(96)
  expect(await metric(engine, 'vllm:prefix_cache_queries_total', '"demo"')).toBe(60 + 60 + 62 + 61)
  expect(await cached('another prompt, quite different '.repeat(400).slice(0, 6_500))).toBe(0)
  expect(await cached(base)).toBe(0)
})

test('a stream is not faster than its pace', async () => {
  await using engine = started({ ttft_ms: 40, tokens_per_s: 100 })
  const asked_at_ms = performance.now()
  const read = await streamed(engine, 'chat/completions', { ...hi, ignore_eos: true, max_tokens: 6 })
  // The sixth token is due five gaps after the first; timers may round down by a millisecond.
  expect(read.events.at(-1)!.at_ms - asked_at_ms).toBeGreaterThanOrEqual(40 + 50 - 2)
})

test('a stream generates only what is read', async () => {
  await using engine = started({ ...at_once, context_tokens: 2_000_000 })
  using client = await connectRaw(engine.port)
  client.pause()
  const body = { ...hi, stream: true, ignore_eos: true, max_tokens: 300_000 }
  await client.send(requestBytes('POST', '/v1/chat/completions', {}, body))
  await eventually(() => engine.stats().generation_tokens > 0)
  await eventually(async () => {
    const before = engine.stats().generation_tokens
    await Bun.sleep(50)
    expect(engine.stats().generation_tokens).toBe(before)
  })
  expect(engine.stats().generation_tokens).toBeLessThan(100_000)
})

test('a stream is cut by order', async () => {
  await using engine = started(at_once)
  const read = await streamed(engine, 'chat/completions', hi, { headers: { 'x-demo-cut-after-tokens': '3' } })
  expect([read.ended, read.done, read.finish()]).toEqual(['cut', false, []])
  expect(read.text()).not.toBe('')
  expect(engine.stats()).toMatchObject({ running: 0, finished: { error: 1 } })
})
