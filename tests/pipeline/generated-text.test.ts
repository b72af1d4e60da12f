import { describe, expect, test } from 'bun:test'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { countInPieces } from '../../src/engines/token-pieces.ts'
import { readAnswer } from '../../src/engines/openai-events.ts'
import { GeneratedText, KEPT_BYTES_MAX, textsOf } from '../../src/pipeline/generated-text.ts'
import { forAll, pick } from '../kit/wait.ts'

/** What is kept of a stream to be counted: all that was generated, whatever the events. */

const count = (text: string) => countInPieces(text, (piece) => countTokens(piece, { disallowedSpecial: new Set() }))
const tokensIn = (texts: readonly string[]) => texts.reduce((sum, text) => sum + count(text), 0)

const note = (text: GeneratedText, event: object) => {
  const bytes = Buffer.from(`  ${JSON.stringify(event)} `)
  text.note(readAnswer(bytes), bytes, 0, bytes.length)
}
const chunk = (delta: object, index = 0) => ({ choices: [{ index, delta }] })

const PROSE = 'The quick "brown" fox\njumped over 13 lazy dogs; naïve 你好 👍 and don\'t.'

describe('texts come back whole', () => {
  test('at every split in two', () => {
    for (let at = 1; at < PROSE.length; at++) {
      const text = new GeneratedText()
      note(text, chunk({ content: PROSE.slice(0, at) }))
      note(text, chunk({ content: PROSE.slice(at) }))
      expect(text.take()).toEqual([PROSE])
      expect(text.events).toBe(2)
    }
  })

  test('by choice and kind, mixed in any way', () => {
    forAll(200, (roll) => {
      const text = new GeneratedText()
      const want = new Map<string, string>()
      for (let n = roll(30); n > 0; n--) {
        const [from, index] = [roll(PROSE.length), roll(3)]
        const said = PROSE.slice(from, from + 1 + roll(9))
        const add = (kind: string) => want.set(kind, (want.get(kind) ?? '') + said)
        const kind = pick(roll, ['content', 'reasoning_content', 'tool', 'refusal', 'text', 'both'] as const)
        if (kind === 'tool') note(text, chunk({ tool_calls: [{ index: 1, function: { arguments: said } }] }, index))
        else if (kind === 'text') note(text, { choices: [{ index, text: said }] })
        else if (kind === 'both') note(text, chunk({ reasoning: said, reasoning_content: said }, index))
        else note(text, chunk({ [kind]: said }, index))
        add(`${index} ${kind === 'text' ? 'content' : kind === 'both' ? 'reasoning_content' : kind}`)
      }
      expect(text.take().toSorted()).toEqual([...want.values()].toSorted())
      expect(text.unread_bytes).toBe(0)
    })
  })
})

test('a long text is handed out in parts that have its tokens, and little of it is kept', () => {
  forAll(20, (roll) => {
    const text = new GeneratedText()
    const parts: string[] = []
    let all = ''
    while (all.length < 5 * KEPT_BYTES_MAX) {
      const said = `${PROSE.slice(roll(20), 20 + roll(45))} `
      all += said
      note(text, chunk({ content: said }))
      parts.push(...text.parts())
    }
    expect(parts.length).toBeGreaterThan(3)
    expect(parts.every((part) => part.length <= KEPT_BYTES_MAX)).toBe(true)
    parts.push(...text.take())
    expect(parts.join('')).toBe(all)
    expect(tokensIn(parts)).toBe(count(all))
  })
})

test('a large answer in one event is not kept at all', () => {
  const text = new GeneratedText()
  const large = 'word '.repeat(200_000)
  note(text, chunk({ content: large }))
  const parts = text.parts()
  expect(parts.join('').length).toBeGreaterThan(large.length - 2_048)
  expect([...parts, ...text.take()].join('')).toBe(large)
})

test('the engine’s own count takes the place of what came before', () => {
  const text = new GeneratedText()
  note(text, chunk({ content: 'before '.repeat(KEPT_BYTES_MAX / 4) }))
  text.counted()
  expect([text.bytes, text.events, text.told, text.take()]).toEqual([0, 0, 1, []])
  note(text, chunk({ content: 'after' }))
  expect([text.bytes, text.take()]).toEqual([5, ['after']])
})

test('what is no text counts by its size', () => {
  const text = new GeneratedText()
  note(text, chunk({ content: [{ type: 'text', text: 'abc' }] }))
  expect([text.bytes, text.unread_bytes, text.take()]).toEqual([7, 7, []])
})

test('texts of whole answers, chat and completion', () => {
  const of = (value: object) => textsOf(Buffer.from(JSON.stringify(value)))?.map(([, text]) => text)
  expect(of({ choices: [{ text: 'a' }, { index: 1, text: 'b' }] })).toEqual(['a', 'b'])
  const call = { function: { name: 'f', arguments: '{}' } }
  expect(of({ choices: [{ message: { content: 'c', reasoning_content: 'r', tool_calls: [call] } }] })).toEqual([
    'c',
    'r',
    'f',
    '{}',
  ])
  expect(textsOf(Buffer.from('{'))).toBeUndefined()
})
