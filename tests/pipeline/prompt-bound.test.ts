import { describe, expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { countTokens as count_cl100k } from 'gpt-tokenizer/encoding/cl100k_base'
import { countTokens as count_o200k } from 'gpt-tokenizer/encoding/o200k_base'
import { countTokens as count_r50k } from 'gpt-tokenizer/encoding/r50k_base'
import { Failure } from '../../src/base/failure.ts'
import { parseBody } from '../../src/pipeline/body.ts'
import { type Endpoint, ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import { completionTokensMax, MEDIA_TOKENS_MAX, promptTokensMax } from '../../src/pipeline/prompt-bound.ts'
import { forAll, pick, type Roll } from '../kit/wait.ts'

/** The bound on a prompt's tokens against a real tokenizer: it may be far above, never below. */

// Names of special tokens in a text are text to whoever bills.
const as_text = { disallowedSpecial: new Set<string>() }
const PLAIN_COUNTS = [count_o200k, count_cl100k, count_r50k].map((count) => (text: string) => count(text, as_text))
// As tokenizers do that rewrite a text first.
const COUNTS = [
  ...PLAIN_COUNTS,
  (text: string) => count_cl100k(text.normalize('NFC'), as_text),
  (text: string) => count_r50k(text.normalize('NFKC'), as_text),
]
/** What a template puts around a message; the most that templates in use put is ten. */
const MARKS = 10

const bodyOf = (text: string, endpoint: Endpoint = ENDPOINTS.chat) => {
  const body = parseBody(Buffer.from(text), true)
  if (body instanceof Failure) throw new Error(`${body.code}: ${body.detail.says}`)
  return { body, arrival: { endpoint } }
}
const boundOf = (text: string, endpoint?: Endpoint) => promptTokensMax(bodyOf(text, endpoint))

type Message = { role: string; content: string | { type: string; text?: string }[] }

/** Tokens of a chat as an engine counts them: each message's texts and its marks, and the tools as they are written. */
const tokensOf = (count: (text: string) => number, messages: readonly Message[], tools?: unknown): number =>
  messages.reduce((sum, { role, content }) => {
    const texts = typeof content === 'string' ? [content] : content.map(({ text = '' }) => text)
    return texts.reduce((inner, text) => inner + count(text), sum + MARKS + count(role))
  }, 3) + (tools === undefined ? 0 : count(JSON.stringify(tools)))

const expectBounded = (messages: readonly Message[], tools?: unknown, written = JSON.stringify) => {
  const bound = boundOf(written({ model: 'm', messages, ...(tools !== undefined && { tools }) }))
  for (const count of COUNTS) {
    const real = tokensOf(count, messages, tools)
    if (real > bound)
      throw new Error(`${real} tokens, the bound is ${bound}: ${JSON.stringify(messages).slice(0, 400)}`)
  }
  return bound
}

const CORPORA = resolve(import.meta.dir, '../../../shared/corpora')
const FILES = ['benign.json', 'indirect-injection.json', 'jailbreaks.json', 'pii.json']
/** Texts a file: all of them would take long, and they are alike. */
const TEXTS_MAX = 150

for (const file of FILES)
  test.skipIf(!existsSync(`${CORPORA}/${file}`))(`texts of ${file}`, () => {
    const texts: string[] = []
    const gather = (value: unknown): void => {
      if (typeof value === 'string') texts.push(value)
      else if (typeof value === 'object' && value !== null) Object.values(value).forEach(gather)
    }
    gather(JSON.parse(readFileSync(`${CORPORA}/${file}`, 'utf8')))
    const step = Math.max(1, Math.floor(texts.length / TEXTS_MAX))
    for (let at = 0; at < texts.length; at += step) expectBounded([{ role: 'user', content: texts[at]! }])
    expect(texts.length).toBeGreaterThan(20)
  })

const span = (roll: Roll, from: number, to: number) => String.fromCodePoint(from + roll(to - from))
/** Sources of text that tokenizers are worst at. */
const HOSTILE: Readonly<Record<string, (roll: Roll) => string>> = {
  emoji: (roll) => pick(roll, ['👩‍👩‍👧‍👦', '🏴‍☠️', '🫱🏿‍🫲🏻', span(roll, 0x1f300, 0x1faff)]),
  cjk: (roll) => span(roll, 0x4e00, 0x9fff),
  rare_cjk: (roll) => span(roll, 0x20000, 0x2a6df),
  zalgo: (roll) => `z${span(roll, 0x300, 0x36f)}${span(roll, 0x300, 0x36f)}${span(roll, 0x300, 0x36f)}`,
  code: (roll) => pick(roll, ['=>{', '}}\n\t\t', '&&!', '::<_>', '/**/', '->', '`${', 'i++;', '\r\n', '\\\\']),
  digits: (roll) => String(roll(1_000_000_007)),
  spaces: (roll) => pick(roll, [' ', '\u00a0', '\u2003', '\t', '\u200b', '\ufeff']),
  scripts: (roll) => span(roll, 0x900, 0x1fff),
  private_use: (roll) => span(roll, 0xe000, 0xf8ff),
  last_planes: (roll) => span(roll, 0xe0000, 0x10fffe),
  controls: (roll) => span(roll, 1, 0x1f),
  specials: (roll) => pick(roll, ['<|endoftext|>', '<|im_start|>', '[INST]', '<s>', '</s>']),
  latin: (roll) => span(roll, 0x80, 0x24f),
  ligatures: (roll) => pick(roll, ['\ufdfa', '\u{1d160}', '\ufb2c', '\u3316', '\u0344', '\u00bd', '\ufb03']),
  one_letter: (roll) => span(roll, 0x21, 0x7e),
}

test.each(Object.entries(HOSTILE))('hostile texts: %s', (_name, make) => {
  forAll(15, (roll) => {
    const text = Array.from({ length: 1 + roll(200) }, () => make(roll)).join('')
    expectBounded([{ role: 'user', content: text }])
  })
})

test('hostile conversations: all of it mixed, in parts, with tools, with every character escaped', () => {
  const makers = Object.values(HOSTILE)
  const escaped = (value: unknown) =>
    JSON.stringify(value).replace(
      /[^\u0020-\u007e]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    )
  forAll(40, (roll) => {
    const text = () => Array.from({ length: roll(40) }, () => pick(roll, makers)(roll)).join('')
    const messages = Array.from({ length: 1 + roll(12) }, () => ({
      role: pick(roll, ['system', 'user', 'assistant', 'x']),
      content: roll(3) === 0 ? Array.from({ length: roll(4) }, () => ({ type: 'text', text: text() })) : text(),
    }))
    const tools = roll(2) === 0 ? [{ type: 'function', function: { name: 'f', description: text() } }] : undefined
    expectBounded(messages, tools, roll(2) === 0 ? JSON.stringify : escaped)
  })
})

test('ligatures behind escapes, and backslashes that are none', () => {
  const escaped = (text: string) => `{"model":"m","messages":[{"role":"user","content":"${text.repeat(100)}"}]}`
  expect(boundOf(escaped('\\ufdfa'))).toBeGreaterThan(100 * 33)
  expect(boundOf(escaped('\\\\\\uFDFA'))).toBeGreaterThan(100 * 33)
  expect(boundOf(escaped('\\ud834\\udd60'))).toBeGreaterThan(100 * 12)
  for (const plain of ['\\\\ufdfa', '\\u4e2d', '\\n'])
    expect(boundOf(escaped(plain))).toBe(Buffer.byteLength(escaped(plain)) + 256)
})

test('a body of 100 KB and one of a thousand empty messages', () => {
  const long = '天地玄黃 0123456789 '.repeat(4_000)
  expectBounded([{ role: 'user', content: long }])
  expectBounded(Array.from({ length: 1_000 }, () => ({ role: 'u', content: '' })))
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(90_000)}` } }
  const messages = [{ role: 'user', content: [picture] }, ...Array.from({ length: 1_000 }, () => ({ role: 'a' }))]
  const bound = boundOf(JSON.stringify({ model: 'm', messages }))
  expect(bound).toBeGreaterThan(MEDIA_TOKENS_MAX + 1_000 * MARKS)
  expect(bound).toBeLessThan(MEDIA_TOKENS_MAX + 20_000)
})

const part = (json: string) => `{"model":"m","messages":[{"role":"user","content":[${json}]}]}`
describe('what is not plainly text counts as media, however it is written', () => {
  test.each([
    [1, part('{"type":"image_url","image_url":{"url":"https://e.x/a.png"}}')],
    [1, part('{"type":"image_url","image_url":"data:image/png;base64,AAAA"}')],
    [1, part('{"type":"text","image\\u005furl":{"url":"https://e.x/a.png"}}')],
    [1, part('{"type":"text","text":"t","type":"image_url","image_url":"https://e.x/a.png"}')],
    [1, part('{"type":"im\\u0061ge_url","text":"https://e.x/a.png"}')],
    [1, part('{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}')],
    [
      3,
      part(
        '{"type":"file","file":{"file_id":"f"}},{"type":"text","text":"t"},{"type":"video_url","video_url":{}},{"image":"x"}',
      ),
    ],
    [1, '{"model":"m","messages":[{"role":"user","c\\u006fntent":[{"type":"image_url","image_url":{"url":"u"}}]}]}'],
    [
      0,
      part(
        '{"type":"text","text":"{\\"type\\":\\"image_url\\"}"},{"type":"text","text":"t","cache_control":{"type":"ephemeral"}}',
      ),
    ],
    [
      0,
      '{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}',
    ],
    [0, '{"model":"m","messages":[{"role":"user","content":"[{\\"image_url\\":{}}]"}]}'],
  ] as const)('%i in %s', (media, text) => {
    expect(boundOf(text)).toBe(Buffer.byteLength(text) + 256 + media * MEDIA_TOKENS_MAX)
  })
})

test('other addresses: an input, a list of them, tokens as numbers, messages for embeddings', () => {
  const { embeddings, completions } = ENDPOINTS
  for (const text of [
    '{"model":"m","input":"天地"}',
    '{"model":"m","input":[[1],[2],[3]]}',
    `{"model":"m","messages":[{"role":"user","content":"${'x'.repeat(900)}"}]}`,
  ])
    expect(boundOf(text, embeddings)).toBeGreaterThanOrEqual(Buffer.byteLength(text))
  expect(boundOf(`{"model":"m","prompt":[${'1,'.repeat(999)}1]}`, completions)).toBeGreaterThan(1_000)
})

test.each([
  ['{"model":"m"}', 'chat', 100],
  ['{"model":"m","max_tokens":5}', 'chat', 5],
  ['{"model":"m","max_tokens":5,"n":3}', 'chat', 15],
  ['{"model":"m","max_tokens":500,"max_completion_tokens":7}', 'chat', 500],
  ['{"model":"m","max_tokens":500,"max_completion_tokens":-1}', 'chat', 500],
  ['{"model":"m","max_tokens":7,"max_completion_tokens":null}', 'chat', 7],
  ['{"model":"m","prompt":"a","max_tokens":5,"n":2,"best_of":4}', 'completions', 20],
  ['{"model":"m","prompt":["a","b, [","\\",\\""],"max_tokens":5}', 'completions', 15],
  ['{"model":"m","prompt":[[1,2],[3]],"max_tokens":5}', 'completions', 10],
  ['{"model":"m","prompt":[1,2,3],"max_tokens":5}', 'completions', 5],
  ['{"model":"m","input":"a"}', 'embeddings', 0],
] as const)('completion tokens at most: %s', (text, endpoint, most) => {
  expect(completionTokensMax(bodyOf(text, ENDPOINTS[endpoint]), 100)).toBe(most)
})
