import { describe, expect, test } from 'bun:test'

import { type AnswerFacts, readAnswer } from '../../src/engines/openai-events.ts'
import { SseScanner } from '../../src/engines/sse-scanner.ts'
import { forAll } from './for-all.ts'
import { madeKeys, madeObject, madeValue } from './json-made.ts'

const envelope = { id: 'chatcmpl-t1', object: 'chat.completion.chunk', created: 1700000000, model: 'm1' }
const CH = (delta: unknown, finish_reason: string | null = null, more = {}) =>
  JSON.stringify({ ...envelope, choices: [{ index: 0, delta, finish_reason }], ...more })
const counts = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 }
const read = (text: string): AnswerFacts => readAnswer(Buffer.from(text))
/** The facts without the places of values. */
const facts = (text: string) => {
  const { usage_start: _1, usage_end: _2, model_start: _3, model_end: _4, usage, ...others } = read(text)
  const { choices: _5, texts: _6, text_kind: _7, text_start: _8, text_end: _9, ...rest } = others
  return { ...rest, usage: usage && [usage.prompt_tokens, usage.completion_tokens] }
}
const plain = {
  done: false,
  malformed: false,
  error: undefined,
  usage: undefined,
  usage_only: false,
  choice_index_max: -1,
  finishes: [] as unknown[],
  text_bytes: 0,
  reasoning_bytes: 0,
  tool_bytes: 0,
}
const one = { ...plain, choice_index_max: 0 }

describe('where a text stands', () => {
  test.each([
    ['content', CH({ content: 'hi' }), 1, 'content', '"hi"'],
    ['empty', CH({ role: 'assistant', content: '' }), 0, 'other', ''],
    ['text of a completion', '{"choices":[{"index":0,"text":"a\\n"}]}', 1, 'content', '"a\\n"'],
    ['reasoning', CH({ reasoning_content: 'r', content: null }), 1, 'reasoning', '"r"'],
    ['reasoning under two names', CH({ reasoning_content: 'r', reasoning: 'r' }), 2, 'reasoning', '"r"'],
    ['a refusal', CH({ refusal: 'no' }), 1, 'other', '"no"'],
    ['parts', CH({ content: [{ type: 'text', text: 'a' }] }), 1, 'other', '[{"type":"text","text":"a"}]'],
  ])('%s', (_name, text, texts, text_kind, at) => {
    const found = read(text)
    expect(found).toMatchObject({ texts, text_kind, choices: 1 })
    if (texts > 0) expect(Buffer.from(text).subarray(found.text_start, found.text_end).toString()).toBe(at)
  })
})

describe('events', () => {
  test.each([
    ['a delta', CH({ content: 'hi' }), { ...one, text_bytes: 2 }],
    ['role only', CH({ role: 'assistant', content: '' }), one],
    ['content null', CH({ role: 'assistant', content: null }), one],
    ['vLLM: usage null in every event', CH({ content: 'hi' }, null, { usage: null }), { ...one, text_bytes: 2 }],
    ['UTF-8', CH({ content: '안녕 🌍' }), { ...one, text_bytes: 11 }],
    [
      'escapes',
      '{"choices":[{"index":0,"delta":{"content":"\\uc548\\n\\"usage\\":{"}}]}',
      { ...one, text_bytes: 3 + 1 + 9 },
    ],
    [
      'text that speaks of usage',
      CH({ content: '"usage":{"prompt_tokens":9},"error":{},"finish_reason":"stop"' }),
      { ...one, text_bytes: 61 },
    ],
    ['text that is a key', CH({ content: 'usage' }), { ...one, text_bytes: 5 }],
    ['finish', CH({}, 'stop'), { ...one, finishes: [{ index: 0, reason: 'stop' }] }],
    [
      'finish with usage',
      CH({}, 'length', { usage: counts }),
      { ...one, finishes: [{ index: 0, reason: 'length' }], usage: [5, 1] },
    ],
    ['continuous usage', CH({ content: 'a' }, null, { usage: counts }), { ...one, text_bytes: 1, usage: [5, 1] }],
    [
      'usage only, choices empty',
      JSON.stringify({ ...envelope, choices: [], usage: counts }),
      { ...plain, usage_only: true, usage: [5, 1] },
    ],
    [
      'usage only, no choices',
      JSON.stringify({ ...envelope, usage: counts }),
      { ...plain, usage_only: true, usage: [5, 1] },
    ],
    [
      'usage only, choices null',
      JSON.stringify({ choices: null, usage: counts }),
      { ...plain, usage_only: true, usage: [5, 1] },
    ],
    ['usage before choices', JSON.stringify({ usage: counts, choices: [{ index: 0 }] }), { ...one, usage: [5, 1] }],
    [
      'unsound usage is usage for the relay',
      '{"choices":[],"usage":{"prompt_tokens":-1}}',
      { ...plain, usage_only: true },
    ],
    [
      'usage twice: the last that is not null',
      '{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2},"usage":null}',
      { ...plain, usage_only: true, usage: [2, 0] },
    ],
    ['empty choices without usage (Azure)', '{"choices":[],"prompt_filter_results":[]}', plain],
    [
      'usage deeper down does not count',
      CH({ content: 'a', usage: counts, error: {}, finish_reason: 'stop' }),
      { ...one, text_bytes: 1 },
    ],
    ['reasoning', CH({ reasoning_content: 'abc' }), { ...one, reasoning_bytes: 3 }],
    [
      'reasoning under two names counts once',
      CH({ reasoning: 'r1', reasoning_content: 'r1', content: 'x' }),
      { ...one, reasoning_bytes: 2, text_bytes: 1 },
    ],
    ['refusal', CH({ refusal: 'no' }), { ...one, text_bytes: 2 }],
    ['content in parts', CH({ content: [{ type: 'text', text: 'abc' }] }), { ...one, text_bytes: 4 + 3 }],
    [
      'a tool call',
      CH({
        tool_calls: [{ index: 0, id: 'call_a', type: 'function', function: { name: 'read', arguments: '{"p":' } }],
      }),
      { ...one, tool_bytes: 9 },
    ],
    [
      'tool calls, more arguments',
      CH({
        tool_calls: [
          { index: 0, function: { arguments: '"a"}' } },
          { index: 1, function: { arguments: 'x' } },
        ],
      }),
      { ...one, tool_bytes: 5 },
    ],
    ['a custom tool', CH({ tool_calls: [{ custom: { name: 'n', input: 'abc' } }] }), { ...one, tool_bytes: 4 }],
    ['a function call of old', CH({ function_call: { name: 'f', arguments: '{}' } }), { ...one, tool_bytes: 3 }],
    ['text completion', '{"choices":[{"index":0,"text":"abc","finish_reason":null}]}', { ...one, text_bytes: 3 }],
    [
      'two choices',
      '{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"},{"finish_reason":"length","index":3}]}',
      {
        ...plain,
        choice_index_max: 3,
        text_bytes: 1,
        finishes: [
          { index: 1, reason: 'stop' },
          { index: 3, reason: 'length' },
        ],
      },
    ],
    [
      'choices without index',
      '{"choices":[{"finish_reason":"a"},{"finish_reason":"b"}]}',
      {
        ...plain,
        choice_index_max: 1,
        finishes: [
          { index: 0, reason: 'a' },
          { index: 1, reason: 'b' },
        ],
      },
    ],
    [
      'an odd index',
      '{"choices":[{"index":-1},{"index":1e9},{"index":"x"},{"index":12345}]}',
      { ...plain, choice_index_max: 3 },
    ],
    [
      'a whole answer',
      '{"choices":[{"index":0,"message":{"role":"assistant","content":"abcd","tool_calls":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}',
      { ...one, text_bytes: 4, finishes: [{ index: 0, reason: 'stop' }], usage: [3, 1] },
    ],
    [
      'embeddings',
      '{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":3,"total_tokens":3}}',
      { ...plain, usage_only: true, usage: [3, 0] },
    ],
    [
      'white space',
      ` { "choices" : [ { "index" : 0 , "delta" : { "content" : "a" } } ] , "usage" : { "prompt_tokens" : 1 } } \n`,
      { ...one, text_bytes: 1, usage: [1, 0] },
    ],
    ['done', '[DONE]', { ...plain, done: true }],
    ['done with spaces', ' [DONE] ', { ...plain, done: true }],
  ])('%s', (_, text, want) => expect(facts(text)).toEqual(want as never))
})

describe('errors', () => {
  const error = (message: string, type = '', code = '') => ({ message, type, code })
  test.each([
    ['{"error":{"message":"m","type":"t","code":"c"}}', error('m', 't', 'c')],
    ['{"error":{"message":"m","type":null,"code":429}}', error('m', '', '429')],
    ['{"error":"overloaded"}', error('overloaded')],
    ['{"error":"overloaded","error_type":"overloaded"}', error('overloaded')],
    ['{"error":{}}', error('')],
    ['{"error":true}', error('true')],
    ['{"error":[1]}', error('')],
    ['{"object":"error","message":"m","type":"BadRequestError","code":400}', error('m', 'BadRequestError', '400')],
    ['{"choices":[{"finish_reason":"error"}],"error":{"message":"cut"}}', error('cut')],
    [`{"error":{"message":"${'x'.repeat(10_000)}"}}`, error('x'.repeat(4096))],
    [`{"error":{"message":"${'x'.repeat(100_000)}"}}`, error('')],
    ['{"error":null}', undefined],
    ['{"error":false}', undefined],
    ['{"error":""}', undefined],
    ['{"object":"chat.completion","message":"m"}', undefined],
  ])('%.70s', (text, want) => expect(read(text).error).toEqual(want as never))
})

describe('malformed', () => {
  test.each([
    '',
    ' ',
    '{',
    '{"choices":[{"delta":{"content":"a',
    '{}x',
    '{"a":1}{"b":2}',
    '[DONE',
    '[DONE]x',
    'DONE',
    'null',
    '5',
    '"x"',
    '[]',
    '{"choices":[,]}',
    '{"choices":[}',
    '{"usage":{"prompt_tokens":}}',
    '{"choices":[{"index":0}',
    '{"a":"\n"}',
    '{"error":{"message":"m"}',
    `{"choices":${'['.repeat(500)}`,
    '{"choices":[{"delta":',
    '{"choices":[',
    '{"choices":',
    '{"choices"',
    '{"choices":[{"delta":{"tool_calls":[',
    '<html>',
  ])('%j', (text) => expect([read(text).malformed, read(text).done]).toEqual([true, false]))

  test('made answers, cut or bent: malformed exactly if JSON.parse refuses, and never a throw', () => {
    const parses = (text: string): boolean => {
      try {
        const value: unknown = JSON.parse(text)
        return typeof value === 'object' && value !== null && !Array.isArray(value)
      } catch {
        return false
      }
    }
    const keys = ['"choices"', '"usage"', '"error"', '"model"', '"object"']
    forAll(3000, (roll) => {
      const inner = ['"index"', '"delta"', '"finish_reason"', '"text"', ...madeKeys(roll)].filter(() => roll(3) > 0)
      const deltas = ['"content"', '"reasoning"', '"tool_calls"', '"function_call"'].filter(() => roll(2) > 0)
      const some = keys.filter(() => roll(4) > 0)
      const text = Buffer.from(
        madeObject(roll, [...some, ...madeKeys(roll)])
          .replace(
            /("choices"\s*:\s*)(?=[[{"\dtfn-])/,
            `$1[${madeObject(roll, inner)},{"delta":${madeObject(roll, deltas)}}],"zz":`,
          )
          .replace(/("usage"\s*:\s*)(?=[[{"\dtfn-])/, `$1{"prompt_tokens":3,"x":${madeValue(roll, 1)}},"yy":`),
      ).toString()
      const at = roll(text.length)
      const bent =
        roll(2) === 0
          ? text
          : text.slice(0, at) + ['', '"', '}', ']', ',', ':', '\\'][roll(7)]! + text.slice(at + roll(2))
      expect([bent, read(bent).malformed]).toEqual([bent, !parses(bent)])
    })
  })
})

test('places of model and usage', () => {
  const text = `xx${CH({ content: 'a' }, null, { usage: counts })}yy`
  const got = readAnswer(Buffer.from(text), 2, text.length - 2)
  expect(text.slice(got.model_start, got.model_end)).toBe('"m1"')
  expect(text.slice(got.usage_start, got.usage_end)).toBe(JSON.stringify(counts))
  expect(read('{"usage":null}')).toMatchObject({ usage_start: -1, model_start: -1 })
})

test('C01: a stream through scanner and reader', () => {
  for (const last of [`{"choices":[],"usage":${JSON.stringify(counts)}}`, `{"usage":${JSON.stringify(counts)}}`]) {
    const scanner = new SseScanner()
    const events = [CH({ role: 'assistant', content: 'hi' }), CH({}, 'stop'), last, '[DONE]']
    scanner.push(Buffer.from(events.map((data) => `data: ${data}\n\n`).join('')))
    const seen: string[] = []
    while (scanner.next() === true) {
      const got = readAnswer(scanner.data_buffer, scanner.data_start, scanner.data_end)
      seen.push(
        got.done
          ? 'done'
          : got.usage_only
            ? `usage ${got.usage?.prompt_tokens}+${got.usage?.completion_tokens}`
            : `event ${got.finishes.length}`,
      )
    }
    expect(seen).toEqual(['event 0', 'event 1', 'usage 5+1', 'done'])
  }
})

test('an event of two million letters', () => {
  expect(read(CH({ content: 'a'.repeat(2_000_000) })).text_bytes).toBe(2_000_000)
})
