import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { countTokens as count_cl100k } from 'gpt-tokenizer/encoding/cl100k_base'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import type { CallRow } from '../kit/house.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, cut, D, DONE, end, head, body, json, never, script, type Script, sse200, US, wait } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/**
 * What is billed where the engine does not say: what it generated and Weir received, counted by a tokenizer and flagged.
 * Where the engine tells its usage with every chunk: exactly that.
 */

const cast = newCast()
const say = (content: string) => D(CH({ content }))
const SECRET_WORD = 'zebrafinchlike'

/** Several tokens an event, as with speculative decoding. */
const MANY = [
  'The quick brown fox',
  ' jumped over 13 lazy',
  ` ${SECRET_WORD} dogs.\n\n"Well,"`,
  ' said naïve 你好世界 👍.',
]
/** Half tokens: words that end in the middle of an event, figures one by one. */
const HALF = [
  'unbe',
  'liev',
  'able',
  ' in',
  'comp',
  're',
  'hen',
  'sib',
  'ility',
  ' 1',
  '2',
  '3',
  '4',
  " don'",
  't',
  '\n',
  '\n',
]
const REASONING = ['Let me ', 'think about', ' thinking']
const ARGUMENTS = ['{"city', '":"Zür', 'ich","days":', '12}']
const tool = (made: object) => ({ tool_calls: [{ index: 0, id: 'c', type: 'function', function: made }] })
const mixed: Script = script(
  REASONING.map((text) => D(CH({ reasoning_content: text, reasoning: text }))),
  say('Then: '),
  D(CH(tool({ name: 'get_weather', arguments: '' }))),
  ARGUMENTS.map((text) => D(CH(tool({ arguments: text })))),
)
const completion = (text: string) =>
  D({ object: 'text_completion', choices: [{ index: 0, text, finish_reason: null }] })

const many_tokens = countTokens(MANY.join(''))
const mixed_tokens = [REASONING.join(''), 'Then: ', 'get_weather', ARGUMENTS.join('')].reduce(
  (sum, text) => sum + countTokens(text),
  0,
)
/** Longer than what is kept of a stream: counted while it goes on. */
const LONG = Array.from({ length: 900 }, (_, at) => ` A sentence of some length, number ${at}, for the count.`)

const STREAMS: readonly (readonly [name: string, steps: Script, tokens: number])[] = [
  ['several tokens an event', script(MANY.map(say)), many_tokens],
  ['half tokens', script(HALF.map(say)), countTokens(HALF.join(''))],
  ['reasoning, text and a tool call', mixed, mixed_tokens],
  ['a text completion', script(MANY.map(completion)), many_tokens],
  ['a long answer', script(LONG.map(say)), countTokens(LONG.join(''))],
]
const finish = D(CH({}, 'stop'))
const left = STREAMS.map(([, steps]) => cast.part([script(sse200, steps, say('END'), never)]))
const broken = STREAMS.map(([, steps]) => cast.part([script(sse200, steps, wait(30), cut)]))
const silent = STREAMS.map(([, steps]) => cast.part([script(sse200, steps, finish, DONE, end)]))
const other_encoding = cast.part([script(sse200, MANY.map(say), finish, DONE, end)], {
  of_model: { tokenizer: 'cl100k_base' },
})
const prompt_told = cast.part([
  script(
    sse200,
    D({ ...CH({ role: 'assistant', content: '' }), usage: { prompt_tokens: 77, completion_tokens: 0 } }),
    MANY.map(say),
    say('END'),
    never,
  ),
])
const message = { content: MANY.join(''), reasoning_content: REASONING.join('') }
const whole = cast.part([
  json(200, { object: 'chat.completion', choices: [{ index: 0, message, finish_reason: 'stop' }] }),
])
const half_text = JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: MANY.join('') } }] })
const half_whole = cast.part([
  script(
    head(200, { 'content-type': 'application/json' }),
    body(Buffer.from(half_text).subarray(0, Buffer.from(half_text).indexOf('"Well') + 3)),
    never,
  ),
])

/** An engine that tells its usage with every chunk. */
const told = (content: string, completion_tokens: number) => ({
  ...CH({ content }),
  usage: {
    ...{ prompt_tokens: 50, completion_tokens, total_tokens: 50 + completion_tokens },
    prompt_tokens_details: { cached_tokens: 40, audio_tokens: 3 },
    completion_tokens_details: { reasoning_tokens: 5, audio_tokens: 2 },
  },
})
const exact = {
  prompt_tokens: 50,
  cached_tokens: 40,
  reasoning_tokens: 5,
  audio_input_tokens: 3,
  audio_output_tokens: 2,
}
const events = [told('a', 11), told('b', 12), told('c', 17)]
const can = { engine: { can: ['continuous_usage'] } }
const told_left = cast.part([script(sse200, events.map(D), never)], can)
const told_cut = cast.part([script(sse200, events.map(D), wait(30), cut)], can)
const told_late = cast.part([script(sse200, events.map(D), MANY.map(say), never)], can)
const told_whole = () => cast.part([script(sse200, events.map(D), finish, D(US(50, 17)), DONE, end)], can)
const [unasked, asks_usage, asks_all, renames] = [
  told_whole(),
  told_whole(),
  told_whole(),
  cast.part([script(sse200, events.map(D), finish, D(US(50, 17)), DONE, end)], { ...can, rewrite_model: true }),
]
const cannot = cast.part([script(sse200, events.map(D), finish, DONE, end)])

beforeAll(async () => {
  await cast.open()
  // Its first count starts the tokenizer, which is nobody's wait here.
  await cast.stream(other_encoding)
})
afterAll(cast.close)

/** Takes a stream until it has a text, and leaves. */
const leaves = async (part: Part, until: string, stream = true): Promise<CallRow> => {
  using client = await connectRaw(cast.house().port)
  const given = { model: part.model, stream, messages: [{ role: 'user', content: 'hi' }], prompt: 'hi' }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, given))
  await part.engines[0]!.request(0)
  if (stream) await eventually(() => client.unread().includes(until), 5_000)
  else await Bun.sleep(200)
  client.close()
  expect((await part.engines[0]!.hangUp(0)).by).toBe('peer')
  return (await cast.rowsOf(part, 1))[0]!
}

for (const [at, [name, , tokens]] of STREAMS.entries())
  describe(name, () => {
    test('left by its client', async () => {
      const row = await leaves(left[at]!, 'END')
      const more = at === 2 ? countTokens('Then: END') - countTokens('Then: ') : undefined
      const all =
        more === undefined
          ? countTokens([MANY, HALF, [], MANY, LONG][at]!.join('') + (at === 3 ? '' : 'END'))
          : tokens + more
      expect(row).toMatchObject({ ending: 'cut_by_client', usage_source: 'estimated' })
      // A completion's text and a chat's are one here: both are the first choice's.
      expect(row['completion_tokens']).toBe(at === 3 ? countTokens(`${MANY.join('')}END`) : all)
    })

    test('broken off by its engine', async () => {
      const got = await cast.stream(broken[at]!)
      expect(await cast.row(got.id)).toMatchObject({
        ending: 'cut_by_engine',
        usage_source: 'estimated',
        completion_tokens: tokens,
      })
    })

    test('whole, and no usage', async () => {
      const got = await cast.stream(silent[at]!)
      expect(got.done).toBe(true)
      expect(await cast.row(got.id)).toMatchObject({
        ending: 'whole',
        usage_source: 'estimated',
        completion_tokens: tokens,
      })
    })
  })

test('by the encoding of the model', async () => {
  const got = await cast.stream(other_encoding)
  expect(count_cl100k(MANY.join(''))).not.toBe(many_tokens)
  expect(await cast.row(got.id)).toMatchObject({ completion_tokens: count_cl100k(MANY.join('')) })
})

test('a whole answer without usage, and half of one', async () => {
  const response = await cast.post(whole)
  const row = await cast.row(response.headers.get('x-weir-call-id')!)
  const tokens = many_tokens + countTokens(REASONING.join(''))
  expect(row).toMatchObject({ ending: 'whole', usage_source: 'estimated', completion_tokens: tokens })
  expect(response.headers.get('x-weir-cost-usd')).toBe(String((row['charge_nanodollars'] as number) / 1e9))
  const half = await leaves(half_whole, '', false)
  const got = MANY.join('').slice(0, MANY.join('').indexOf('"Well') + 2)
  expect(half).toMatchObject({
    ending: 'cut_by_client',
    usage_source: 'estimated',
    completion_tokens: countTokens(got),
  })
})

test('the prompt as the engine told it, the rest counted', async () => {
  expect(await leaves(prompt_told, 'END')).toMatchObject({
    ...{ prompt_tokens: 77, completion_tokens: countTokens(`${MANY.join('')}END`), usage_source: 'estimated' },
  })
})

test('no journal and no book has a word of it', () => {
  const { data } = cast.house()
  const files = readdirSync(data, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  expect(files.length).toBeGreaterThan(5)
  for (const { parentPath, name } of files)
    expect([name, readFileSync(`${parentPath}/${name}`).includes(SECRET_WORD)]).toEqual([name, false])
})

describe('usage with every chunk', () => {
  test('left: the last figure, and no estimate', async () => {
    expect(await leaves(told_left, '"c"')).toMatchObject({ ...exact, completion_tokens: 17, usage_source: 'engine' })
    expect(told_left.engines[0]!.requests[0]!.json().stream_options).toEqual({
      include_usage: true,
      continuous_usage_stats: true,
    })
  })

  test('broken off: the last figure, and no estimate', async () => {
    const got = await cast.stream(told_cut)
    expect(await cast.row(got.id)).toMatchObject({ ...exact, completion_tokens: 17, usage_source: 'engine' })
  })

  test('what came after the last figure is counted on top of it, and flagged', async () => {
    expect(await leaves(told_late, '👍')).toMatchObject({
      ...{ ...exact, completion_tokens: 17 + many_tokens, usage_source: 'estimated' },
    })
  })

  const shown = (usage: object) => `data: ${JSON.stringify(usage)}\n\n`
  const bare = events.map(({ usage: _, ...rest }) => shown(rest)).join('') + shown(CH({}, 'stop'))

  test('a client that did not ask sees none; no other byte is changed', async () => {
    const got = await cast.stream(unasked)
    expect(Buffer.from(got.bytes).toString()).toBe(`${bare}data: [DONE]\n\n`)
    // The usage chunk at the end is the engine's last word.
    expect(await cast.row(got.id)).toMatchObject({ prompt_tokens: 50, completion_tokens: 17, usage_source: 'engine' })
  })

  test('one that asked for usage sees the last chunk alone', async () => {
    const got = await cast.stream(asks_usage, { stream_options: { include_usage: true } })
    expect(Buffer.from(got.bytes).toString()).toBe(`${bare}${shown(US(50, 17))}data: [DONE]\n\n`)
    const { stream_options } = asks_usage.engines[0]!.requests[0]!.json()
    expect(stream_options).toEqual({ include_usage: true, continuous_usage_stats: true })
  })

  test('one that asked for all sees all', async () => {
    const got = await cast.stream(asks_all, { stream_options: { include_usage: true, continuous_usage_stats: true } })
    expect(got.chunks().map(({ usage }) => usage?.completion_tokens)).toEqual([11, 12, 17, undefined, 17])
  })

  test('beside the other name of the model', async () => {
    const got = await cast.stream(renames, { stream_options: null })
    expect(got.chunks().every((chunk) => chunk.model === renames.model && !('usage' in chunk))).toBe(true)
    expect(got.text()).toBe('abc')
  })

  test('an engine that cannot is not asked, and what it says goes on as it is', async () => {
    const got = await cast.stream(cannot)
    expect(cannot.engines[0]!.requests[0]!.json().stream_options).toEqual({ include_usage: true })
    expect(got.chunks().map(({ usage }) => usage?.completion_tokens)).toEqual([11, 12, 17, undefined])
    expect(await cast.row(got.id)).toMatchObject({ ...exact, completion_tokens: 17, usage_source: 'engine' })
  })
})
