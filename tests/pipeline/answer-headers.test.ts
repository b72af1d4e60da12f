import { expect, test } from 'bun:test'
import { answerOf } from '../../src/pipeline/answer-headers.ts'

const sent = (answer: Response) => Object.fromEntries(answer.headers)

test('each answer has its own headers, whichever went before and whatever becomes of them', () => {
  const wanted = Array.from({ length: 40 }, (_, at) => ({
    'content-type': at % 3 === 0 ? 'text/event-stream' : 'application/json',
    'x-weir-call-id': `call_${at}`,
    ...(at % 2 === 0 && { 'x-weir-cost-usd': `0.0${at}` }),
    ...(at % 5 === 0 && { [`x-more-${at % 7}`]: 'more' }),
  }))
  const answers = wanted.map((headers) => answerOf('{}', headers))
  answers.forEach((answer, at) => {
    expect(sent(answer)).toEqual(wanted[at]!)
    answer.headers.set('connection', 'close')
  })
  const next = answerOf('{}', wanted[1]!, 400)
  expect(sent(next)).toEqual(wanted[1]!)
  expect(next.status).toBe(400)
})

test('after a value that no header can carry the next answer has its own', () => {
  const headers = { 'content-type': 'application/json', 'x-weir-model': 'one', 'x-weir-engine': 'a' }
  answerOf('{}', headers)
  const bad = { ...headers, 'x-weir-model': 'line\nbreak' }
  expect(() => answerOf('{}', bad)).toThrow(TypeError)
  expect(() => answerOf('{}', bad)).toThrow(TypeError)
  const other = { ...headers, 'x-weir-model': 'two', 'x-weir-engine': 'b' }
  expect(sent(answerOf('{}', other))).toEqual(other)
  expect(sent(answerOf('{}', headers))).toEqual(headers)
})
