import { describe, expect, test } from 'bun:test'
import { readAnswer } from '../../src/engines/openai-events.ts'
import { Delivered } from '../../src/pipeline/delivered.ts'
import { GeneratedText } from '../../src/pipeline/generated-text.ts'
import { Splice } from '../../src/pipeline/splice-stream.ts'
import { ToolCalls } from '../../src/pipeline/tool-calls.ts'

/** CASES C09: whatever puts tool calls together keeps two calls apart that an engine gave one index. */

type Call = { readonly index?: number; readonly id?: string; readonly name?: string; readonly arguments?: string }

const delta = (...calls: readonly Call[]) => ({
  choices: [
    {
      index: 0,
      delta: { tool_calls: calls.map(({ index, id, ...made }) => ({ index, id, function: made })) },
      finish_reason: null,
    },
  ],
})
const bytesOf = (event: object) => Buffer.from(JSON.stringify(event))

const delivered = (...events: readonly object[]): Delivered => {
  const all = new Delivered()
  for (const event of events) {
    const bytes = bytesOf(event)
    all.note(readAnswer(bytes), bytes, 0, bytes.length)
  }
  return all
}

describe('a call is told from others', () => {
  // index, id, name
  test.each<readonly [string, readonly (readonly [number, string | undefined, string])[]]>([
    [
      'by its index',
      [
        [0, 'a', '0'],
        [1, 'b', '1'],
        [0, undefined, '0'],
        [1, '', '1'],
      ],
    ],
    [
      'by a new id at the same index',
      [
        [0, 'a', '0'],
        [0, undefined, '0'],
        [0, 'b', '0.1'],
        [0, '', '0.1'],
        [0, 'c', '0.2'],
      ],
    ],
    [
      'not by an id that comes late, is said again, or is no text',
      [
        [0, undefined, '0'],
        [0, 'a', '0'],
        [0, 'a', '0'],
        [0, 7 as unknown as string, '0'],
      ],
    ],
    [
      'also when two take turns',
      [
        [2, 'a', '2'],
        [2, 'b', '2.1'],
        [2, 'a', '2'],
        [2, undefined, '2'],
      ],
    ],
  ])('%s', (_name, deltas) => {
    const calls = new ToolCalls()
    expect(deltas.map(([index, id]) => calls.nameOf(0, index, id))).toEqual(deltas.map(([, , name]) => name))
    expect(calls.nameOf(1, 0, 'of another choice')).toBe('0')
  })

  test('up to a bound: an engine that never stops making up ids does not grow it', () => {
    const calls = new ToolCalls()
    const names = new Set(Array.from({ length: 10_000 }, (_, at) => calls.nameOf(0, 0, `id-${at}`)))
    expect(names.size).toBe(256)
    expect(calls.nameOf(0, 5, 'late')).toBe('5')
  })
})

const A = { index: 0, id: 'a', name: 'read', arguments: '{"p":"a"}' }
const B = { index: 0, id: 'b', name: 'read', arguments: '{"p":"b"}' }

describe('what is kept of an answer', () => {
  test.each<readonly [string, readonly object[]]>([
    ['one event each', [delta(A), delta(B)]],
    ['one event', [delta(A, B)]],
    ['no index', [delta({ ...A, index: undefined! }), delta({ ...B, index: undefined! })]],
    [
      'in pieces',
      [A, B].flatMap(({ index, id, name, arguments: text }) => [
        delta({ index, id, name, arguments: '' }),
        delta({ index, arguments: text.slice(0, 4) }),
        delta({ index, arguments: text.slice(4) }),
      ]),
    ],
    [
      'an id with every piece',
      [A, B].flatMap(({ index, id, name, arguments: text }) => [
        delta({ index, id, name, arguments: text.slice(0, 4) }),
        delta({ index, id: `made-up-${text}`, arguments: text.slice(4) }),
      ]),
    ],
  ])('holds two calls, each with its arguments: %s', (_name, events) => {
    const texts = [...delivered(...events).texts()!]
    expect(texts.filter(([channel]) => channel.endsWith('name')).map(([, text]) => text)).toEqual(['read', 'read'])
    expect(
      texts.filter(([channel]) => channel.endsWith('arguments')).map(([, text]) => JSON.parse(text) as unknown),
    ).toEqual([{ p: 'a' }, { p: 'b' }])
    const counted = new GeneratedText()
    for (const event of events) counted.note(readAnswer(bytesOf(event)), bytesOf(event), 0, bytesOf(event).length)
    expect(counted.take().toSorted()).toEqual(['read', 'read', '{"p":"a"}', '{"p":"b"}'])
  })
})

describe('a replay', () => {
  const again = (had: Delivered, ...events: readonly object[]) => {
    const splice = new Splice(had, 'replay', undefined, undefined)
    const said = events.flatMap((event) => splice.rewrite(JSON.stringify(event)) ?? [])
    return {
      diverged: splice.diverged,
      calls: said.flatMap((event) => JSON.parse(event).choices[0].delta.tool_calls ?? []),
    }
  }
  const had = () => delivered(delta(A), delta({ ...B, arguments: '{"p"' }))

  test('goes on in the second call at one index', () => {
    const got = again(had(), delta({ ...A, id: 'x' }), delta({ ...B, id: 'y' }))
    expect(got).toEqual({ diverged: false, calls: [{ index: 0, function: { arguments: ':"b"}' } }] })
  })

  test('brings the second call with its id', () => {
    const got = again(delivered(delta(A)), delta({ ...A, id: 'x' }), delta({ ...B, id: 'y' }))
    expect(got.diverged).toBe(false)
    expect(got.calls).toEqual([{ index: 0, id: 'y', function: { name: 'read', arguments: '{"p":"b"}' } }])
  })

  test('that makes one call of what were two is none', () => {
    const two = delivered(
      delta({ index: 0, id: 'a', name: 're', arguments: '{}' }),
      delta({ index: 0, id: 'b', name: 'ad' }),
    )
    expect(again(two, delta({ index: 0, id: 'x', name: 'read', arguments: '{}' })).diverged).toBe(true)
  })
})
