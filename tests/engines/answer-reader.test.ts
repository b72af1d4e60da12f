import { expect, test } from 'bun:test'
import { AnswerReader } from '../../src/engines/answer-reader.ts'
import { type AnswerFacts, readAnswer } from '../../src/engines/openai-events.ts'
import { forAll } from './for-all.ts'

const TEXTS = [
  'a',
  ' the',
  'wordy ',
  '',
  '안녕',
  '🌍',
  '\n',
  '"',
  '\\',
  '"}',
  '"},"finish_reason":"stop"',
  '\u0001',
  'x'.repeat(80),
]
const NAMES = ['content', 'reasoning_content', 'reasoning', 'refusal']

/** Events as engines send them, in the order of keys that some have. */
const eventOf = (text: string, name: string, kind: number): string => {
  const choice = { index: kind === 6 ? 1 : 0, delta: { [name]: text }, finish_reason: kind === 7 ? 'stop' : null }
  const head = { id: 'chatcmpl-1', created: 1_700_000_000, model: 'm1' }
  switch (kind) {
    case 0:
      return JSON.stringify({ choices: [choice], ...head })
    case 1:
      return JSON.stringify({ ...head, choices: [choice], usage: { prompt_tokens: 3, completion_tokens: 1 } })
    case 2:
      return JSON.stringify({ ...head, choices: [choice, { ...choice, index: 1 }] })
    case 3:
      return JSON.stringify({ ...head, choices: [{ index: 0, text, finish_reason: null }] })
    case 4:
      return JSON.stringify({
        ...head,
        choices: [{ ...choice, delta: { tool_calls: [{ function: { name: text } }] } }],
      })
    case 5:
      return JSON.stringify({ ...head, choices: [choice], usage: null })
    default:
      return JSON.stringify({ ...head, choices: [choice] })
  }
}

test('a stream’s events are read as each alone is, whatever came before and wherever they stand', () => {
  let forms = 0
  forAll(2_000, (roll) => {
    const pick = <T>(list: readonly T[]): T => list[roll(list.length)]!
    const reader = new AnswerReader()
    let last: AnswerFacts | undefined
    const usual = [pick(NAMES), roll(10)] as const
    for (let turn = 0; turn < 12; turn++) {
      const [name, kind] = roll(10) < 7 ? usual : [pick(NAMES), roll(10)]
      const event = Buffer.from(eventOf(pick(TEXTS), name, kind))
      if (roll(10) === 0) event[roll(event.length)] = roll(256)
      const cut = roll(20) === 0 ? roll(event.length) : event.length
      const before = roll(9)
      const bytes = Buffer.concat([Buffer.alloc(before, 0x22), event, Buffer.from('"}]}')])
      const facts = reader.read(bytes, before, before + cut)
      expect(facts).toEqual(readAnswer(bytes, before, before + cut))
      if (facts === last) forms++
      last = facts
    }
  })
  // It is the forms that are tried here.
  expect(forms).toBeGreaterThan(3_000)
})
