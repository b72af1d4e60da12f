import { describe, expect, test } from 'bun:test'

import { addEvent, newAssembly } from '../../src/engines/assemble.ts'

const of = (choices: unknown) => ({ choices })
const delta = (fields: unknown, finish_reason: string | null = null, index = 0) =>
  of([{ index, delta: fields, finish_reason }])
const call = (fields: Record<string, unknown>) => delta({ tool_calls: [fields] })
const assembled = (events: readonly unknown[], chars_max = 10_000) => {
  const assembly = newAssembly(chars_max)
  for (const event of events) addEvent(assembly, event)
  return assembly
}
const calls = (events: readonly unknown[]) =>
  assembled(events)
    .messages.get(0)!
    .tool_calls.map((one) => [one.id, one.name, one.arguments])

describe('tool calls', () => {
  const read = (id: string | undefined, args: string, index?: number) => ({
    ...(index !== undefined && { index }),
    ...(id !== undefined && { id }),
    type: 'function',
    function: { name: 'read', arguments: args },
  })
  const two = [
    ['call_a', 'read', '{"p":"a"}'],
    ['call_b', 'read', '{"p":"b"}'],
  ]
  test.each([
    ['C09: both say index 0', [call(read('call_a', '{"p":"a"}', 0)), call(read('call_b', '{"p":"b"}', 0))], two],
    ['no index', [call(read('call_a', '{"p":"a"}')), call(read('call_b', '{"p":"b"}'))], two],
    [
      'both in one delta',
      [delta({ tool_calls: [read('call_a', '{"p":"a"}', 0), read('call_b', '{"p":"b"}', 0)] })],
      two,
    ],
    [
      'proper indexes, interleaved',
      [
        call({ index: 0, id: 'call_a', function: { name: 'read', arguments: '' } }),
        call({ index: 1, id: 'call_b', function: { name: 'read', arguments: '' } }),
        call({ index: 0, function: { arguments: '{"p":' } }),
        call({ index: 1, function: { arguments: '{"p":"b"' } }),
        call({ index: 0, id: null, function: { arguments: '"a"}' } }),
        call({ index: 1, id: '', function: { name: null, arguments: '}' } }),
      ],
      two,
    ],
    [
      'the id said again',
      [
        call({ index: 0, id: 'call_a', function: { name: 'read', arguments: '{"p":' } }),
        call({ index: 0, id: 'call_a', function: { name: 'read', arguments: '"a"}' } }),
        call({ index: 0, id: 'call_b', function: { name: 'read', arguments: '{"p":"b"' } }),
        call({ index: 0, id: 'call_b', function: { arguments: '}' } }),
      ],
      two,
    ],
    [
      'index 0 for all, pieces without id go to the last',
      [
        call({ index: 0, id: 'call_a', function: { name: 'read' } }),
        call({ index: 0, function: { arguments: '{"p":"a"}' } }),
        call({ index: 0, id: 'call_b', function: { name: 'read' } }),
        call({ index: 0, function: { arguments: '{"p":"b"}' } }),
      ],
      two,
    ],
    [
      'no ids at all',
      [call(read(undefined, '{"p":"a"}', 0)), call(read(undefined, '{"p":"b"}', 0))],
      [
        ['', 'read', '{"p":"a"}'],
        ['', 'read', '{"p":"b"}'],
      ],
    ],
    [
      'no ids, the name said again within',
      [call(read(undefined, '{"p":', 0)), call(read(undefined, '"a"}', 0))],
      [['', 'read', '{"p":"a"}']],
    ],
    [
      'a name in pieces',
      [
        call({ index: 0, id: 'x', function: { name: 'get_' } }),
        call({ index: 0, function: { name: 'weather', arguments: '{}' } }),
      ],
      [['x', 'get_weather', '{}']],
    ],
    [
      'a custom tool',
      [call({ index: 0, id: 'x', type: 'custom', custom: { name: 'sql', input: 'select 1' } })],
      [['x', 'sql', 'select 1']],
    ],
    ['nonsense', [call({}), delta({ tool_calls: [null, 5, 'x'] }), delta({ tool_calls: 'x' })], [['', '', '']]],
  ])('%s', (_, events, want) => expect(calls(events)).toEqual(want))
})

test('text, reasoning and finish of several choices', () => {
  const { messages, is_cut } = assembled([
    delta({ role: 'assistant', content: '' }),
    delta({ content: '안' }),
    delta({ content: '녕' }, 'stop'),
    delta({ reasoning: 'r', reasoning_content: 'r' }, null, 1),
    delta({ refusal: 'no' }, 'content_filter', 1),
    of([]),
    of(null),
    null,
    'x',
    { usage: {} },
  ])
  expect(messages.get(0)).toEqual({
    role: 'assistant',
    content: '안녕',
    reasoning: '',
    refusal: '',
    tool_calls: [],
    finish_reason: 'stop',
  })
  expect(messages.get(1)).toMatchObject({ reasoning: 'r', refusal: 'no', finish_reason: 'content_filter' })
  expect(is_cut).toBe(false)
})

test('text completions and whole answers', () => {
  expect(assembled([of([{ index: 0, text: 'a' }]), of([{ index: 0, text: 'b' }])]).messages.get(0)?.content).toBe('ab')
  expect(
    assembled([of([{ message: { role: 'assistant', content: 'c' }, finish_reason: 'stop' }])]).messages.get(0),
  ).toMatchObject({
    content: 'c',
    finish_reason: 'stop',
  })
})

test('bounds: characters, choices, calls', () => {
  const cut = assembled([delta({ content: '12345' }), delta({ content: '67890' }), delta({ content: 'x' })], 7)
  expect([cut.messages.get(0)?.content, cut.is_cut, cut.chars_left]).toEqual(['1234567', true, 0])
  const many = assembled([of(Array.from({ length: 500 }, (_, index) => ({ index, delta: { content: 'x' } })))])
  expect([many.messages.size, many.is_cut]).toEqual([128, true])
  const tools = assembled(
    [delta({ tool_calls: Array.from({ length: 5000 }, (_, i) => ({ index: i, id: `c${i}` })) })],
    1e6,
  )
  expect([tools.messages.get(0)!.tool_calls.length, tools.is_cut]).toEqual([1024, true])
})
