import { describe, expect, test } from 'bun:test'
import type { Edit } from '../../src/engines/json-splice.ts'
import { splice as spliced } from '../../src/engines/json-splice.ts'
import { parseBody } from '../../src/pipeline/body.ts'
import type { Routed } from '../../src/pipeline/call.ts'
import { Delivered, DELIVERED_BYTES_MAX } from '../../src/pipeline/delivered.ts'
import { ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import { estimated } from '../../src/pipeline/estimate.ts'
import { planOf } from '../../src/pipeline/resume.ts'
import { Splice, type Way } from '../../src/pipeline/splice-stream.ts'
import { shownUsage, splicedUsage } from '../../src/pipeline/spliced-usage.ts'
import { StreamSource } from '../../src/pipeline/stream-source.ts'
import { bytesOf, CH, D, DONE, US } from '../kit/script.ts'
import { sseEvents } from '../kit/sse-read.ts'
import { forAll, pick } from '../kit/wait.ts'

type Step = Parameters<typeof bytesOf>[0]
const WISHES = { usage: true, choices: 1, alias: undefined }
const of = (steps: readonly Step[]) => Buffer.concat(steps.map(bytesOf))

/** What a client has after these events. */
const after = (...steps: readonly Step[]): Delivered => {
  const delivered = new Delivered()
  new StreamSource({ ...WISHES, delivered }).take(of(steps))
  return delivered
}

/** The rest as another engine's events tell it: parsed, and whether it is none. */
const rest = (delivered: Delivered, way: Way, ...steps: readonly Step[]) => {
  const splice = new Splice(delivered, way, undefined, undefined)
  const source = new StreamSource({ ...WISHES, splice })
  source.take(of(steps))
  const output = source.output() ?? new Uint8Array(0)
  return { source, diverged: source.diverged, events: sseEvents(output).map((event) => JSON.parse(event.data)) }
}
const textOf = (events: any[], key = 'content') =>
  events.flatMap((event) => event.choices.map((choice: any) => choice.delta?.[key] ?? choice.text ?? '')).join('')

const other = (delta: object, finish: string | null = null) => ({
  ...CH(delta, finish),
  id: 'b',
  created: 9,
  model: 'mb',
})
const C = (content: string) => D(CH({ content }))
const O = (content: string) => D(other({ content }))
const role = D(CH({ role: 'assistant', content: '' }))
const other_role = D(other({ role: 'assistant', content: '' }))
const at = (index: number, delta: object, finish: string | null = null) =>
  D({ ...CH({}), choices: [{ index, delta, finish_reason: finish }] })
const tool = (index: number, made: object, id?: string) =>
  D(CH({ tool_calls: [{ index, ...(id && { id, type: 'function' }), function: made }] }))

describe('a replay', () => {
  const given = [role, C('The an'), C('swer is ')]
  test.each<readonly [string, Step[], string]>([
    ['in the same pieces', [O('The an'), O('swer is '), O('42')], '42'],
    ['in other pieces', [O('Th'), O('e answer'), O(' is 4'), O('2')], '42'],
    ['in one piece', [O('The answer is 42')], '42'],
  ])('%s goes on where the other stopped', (_name, again, wanted) => {
    const got = rest(after(...given), 'replay', other_role, ...again, D(other({}, 'stop')), D(US(5, 4)), DONE)
    expect(got.diverged).toBe(false)
    expect(textOf(got.events)).toBe(wanted)
    expect(got.events.flatMap((event) => event.choices).filter((choice: any) => choice.delta.role)).toEqual([])
    const [first] = got.events
    expect(first).toMatchObject({ id: 'chatcmpl-t1', created: 1_700_000_000, model: 'm1' })
    expect(got.source.usage).toMatchObject({ completion_tokens: 4 })
    expect(got.events.at(-1).usage).toMatchObject({ completion_tokens: 4 })
  })

  test.each<readonly [string, Step[]]>([
    ['another text', [O('The question')]],
    ['another end of a piece', [O('The answer was')]],
    ['a shorter answer', [O('The answer'), D(other({}, 'stop'))]],
    ['a shorter answer without a finish reason', [O('The answer'), DONE]],
    ['text where there was reasoning', [D(other({ reasoning_content: 'x' })), O('Thé')]],
    ['what cannot be compared', [D(other({ audio: { data: 'x' } }))]],
  ])('that is %s is none, and nothing more of it goes out', (_name, again) => {
    const got = rest(after(...given), 'replay', ...again)
    expect(got.diverged).toBe(true)
    expect(got.events).toEqual([])
  })

  test('of reasoning and text, under either name', () => {
    const had = after(role, D(CH({ reasoning_content: 'hm, ' })), D(CH({ reasoning_content: 'so' })), C('Yes'))
    const got = rest(had, 'replay', D(other({ reasoning: 'hm, so', reasoning_content: 'hm, so' })), O('Yes, it is'))
    expect(got.diverged).toBe(false)
    expect(textOf(got.events)).toBe(', it is')
    expect(textOf(got.events, 'reasoning_content')).toBe('')
  })

  test('of several choices', () => {
    const had = after(at(0, { content: 'a0' }), at(1, { content: 'b0' }), at(1, {}, 'stop'))
    const again = [at(1, { content: 'b0' }), at(0, { content: 'a0' }), at(0, { content: 'a1' }), at(1, {}, 'stop')]
    const got = rest(had, 'replay', ...again, at(0, {}, 'length'))
    expect(got.diverged).toBe(false)
    expect(got.events.flatMap(({ choices }) => choices)).toEqual([
      { index: 0, delta: { content: 'a1' }, finish_reason: null },
      { index: 0, delta: {}, finish_reason: 'length' },
    ])
    const longer = rest(had, 'replay', at(1, { content: 'b0' }), at(1, { content: 'b1' }))
    expect(longer.diverged).toBe(true)
  })

  test('of a tool call that was cut in its arguments: the same arguments, the first id', () => {
    const had = after(role, tool(0, { name: 'f', arguments: '' }, 'id-1'), tool(0, { arguments: '{"a":' }))
    const again = [tool(0, { name: 'f', arguments: '' }, 'id-9'), tool(0, { arguments: '{"a":1}' })]
    const got = rest(had, 'replay', other_role, ...again, tool(1, { name: 'g', arguments: '{}' }, 'id-10'))
    expect(got.diverged).toBe(false)
    expect(got.events.map((event) => event.choices[0].delta.tool_calls)).toEqual([
      [{ index: 0, function: { arguments: '1}' } }],
      [{ index: 1, id: 'id-10', type: 'function', function: { name: 'g', arguments: '{}' } }],
    ])
    expect(rest(had, 'replay', ...again.slice(0, 1), tool(0, { arguments: '{"b"' })).diverged).toBe(true)
    expect(rest(had, 'replay', tool(0, { name: 'h' }, 'x')).diverged).toBe(true)
  })

  test('cut again goes on again', () => {
    const had = after(role, C('one '))
    expect(textOf(rest(had, 'replay', other_role, O('one two ')).events)).toBe('two ')
    expect(textOf(rest(had, 'replay', O('one two three')).events)).toBe('three')
    const got = rest(had, 'prefix', O(' four'))
    expect(textOf(got.events)).toBe(' four')
    expect(had.texts()!.get('0 content')).toBe('one two three four')
  })

  test('property: however both are cut into pieces, the client has the text once', () => {
    forAll(200, (roll) => {
      const text = Array.from({ length: 1 + roll(30) }, () => pick(roll, LETTERS)).join('')
      const pieces = (whole: string, make: (piece: string) => Step): Step[] => {
        const out: Step[] = []
        for (let at = 0; at < whole.length;) {
          const size = 1 + roll(5)
          out.push(make(whole.slice(at, at + size)))
          at += size
        }
        return out
      }
      const sent = text.slice(0, roll(text.length + 1))
      const had = after(role, ...pieces(sent, C))
      const got = rest(had, 'replay', other_role, ...pieces(text, O), D(other({}, 'stop')), DONE)
      expect(got.diverged).toBe(false)
      expect(sent + textOf(got.events)).toBe(text)
    })
  })
})

const LETTERS = ['a', 'b', '"', '\\', '\n', 'é', '한', '\u{1f30d}', '</s>']

describe('what is asked of another engine', () => {
  const plan = (body: object, delivered: Delivered, endpoint: 'chat' | 'completions' = 'chat', tokens = 2) => {
    const bytes = Buffer.from(JSON.stringify(body))
    const parsed = parseBody(bytes, true)
    if (!('scan' in parsed)) throw parsed
    const call = { body: parsed, arrival: { endpoint: ENDPOINTS[endpoint] } } as unknown as Routed
    const found = planOf(call, delivered, tokens)
    const edited = (edits: readonly Edit[]) => JSON.parse(Buffer.concat(spliced(bytes, edits)).toString())
    return found && (found.prefix === undefined ? 'replay' : edited(found.prefix))
  }
  const chat = { model: 'm', messages: [{ role: 'user', content: 'hi' }], stream: true }
  const had = after(role, C('say "'), C('\u{1f30d}'))

  test('chat: the text so far, as vLLM takes it', () => {
    expect(plan(chat, had)).toEqual({
      ...chat,
      messages: [...chat.messages, { role: 'assistant', content: 'say "\u{1f30d}' }],
      continue_final_message: true,
      add_generation_prompt: false,
    })
    const limited = { ...chat, max_tokens: 10, max_completion_tokens: 9, min_tokens: 5, add_generation_prompt: true }
    expect(plan({ ...limited, tool_choice: 'auto', logprobs: false }, had)).toMatchObject({
      max_tokens: 8,
      max_completion_tokens: 7,
      min_tokens: 3,
      add_generation_prompt: false,
    })
    expect(plan({ ...chat, max_tokens: -1 }, had)).toMatchObject({ max_tokens: -1, continue_final_message: true })
  })

  test('completions: the prompt goes on', () => {
    const body = { model: 'm', prompt: 'Once "', max_tokens: 16, stream: true }
    const text = (text: string) => D({ id: 'c', choices: [{ index: 0, text, finish_reason: null }] })
    const said = after(text(' upon\n'), text(' a'))
    expect(plan(body, said, 'completions')).toEqual({ ...body, prompt: 'Once " upon\n a', max_tokens: 14 })
    expect(plan({ ...body, max_tokens: undefined }, said, 'completions')).toBe('replay')
    expect(plan({ ...body, prompt: ['a'] }, said, 'completions')).toBe('replay')
  })

  test.each<readonly [string, object, Delivered]>([
    ['several choices', { n: 2 }, had],
    ['figures of tokens', { logprobs: true }, had],
    ['a grammar', { response_format: { type: 'json_object' } }, had],
    ['a forced tool', { tool_choice: 'required' }, had],
    ['a message of its own to continue', { continue_final_message: true }, had],
    ['nothing left to write', { max_tokens: 2 }, had],
    ['no text yet', {}, after(role)],
    ['reasoning', {}, after(D(CH({ reasoning_content: 'r' })), C('a'))],
    ['a tool call', {}, after(C('a'), tool(0, { name: 'f', arguments: '{' }, 'i'))],
    ['a refusal', {}, after(D(CH({ refusal: 'no' })))],
    ['a second choice', {}, after(C('a'), at(1, { content: 'b' }))],
  ])('%s: only a replay', (_name, extra, delivered) => {
    expect(plan({ ...chat, ...extra }, delivered)).toBe('replay')
  })

  test.each<readonly [string, object, Delivered]>([
    ['sound', { audio: { voice: 'x' } }, had],
    ['parts for a text', {}, after(D(CH({ content: [{ type: 'text', text: 'a' }] })))],
    [
      'more text than is kept',
      {},
      after(C('x'.repeat(DELIVERED_BYTES_MAX / 2)), C('y'.repeat(DELIVERED_BYTES_MAX / 2 + 1))),
    ],
  ])('%s: nothing', (_name, extra, delivered) => {
    expect(plan({ ...chat, ...extra }, delivered)).toBeUndefined()
  })
})

describe('what the client pays', () => {
  const before = { tokens: estimated(12, 40), by_engine: false }
  const own = (prompt: number, completion: number, cached = 0) => ({
    tokens: { ...estimated(prompt, completion), cached_tokens: cached },
    by_engine: true,
  })
  test.each([
    ['a prefix, counted by its engine', 'prefix', own(52, 20, 48), 20, 12, 60, 12, false],
    ['a prefix that nobody counted', 'prefix', undefined, 20, 12, 60, 0, false],
    ['a replay, counted by its engine', 'replay', own(11, 60), 60, 11, 60, 0, true],
    ['a replay that nobody counted', 'replay', undefined, 60, 12, 60, 0, false],
    ['a replay cut before it had anything new', 'replay', own(11, 30), 30, 12, 40, 0, false],
  ] as const)('%s', (_name, way, usage, counted, prompt_tokens, completion_tokens, cached_tokens, by_engine) => {
    const got = splicedUsage(way, before, usage, counted, false)
    expect(got).toMatchObject({ tokens: { prompt_tokens, completion_tokens, cached_tokens }, by_engine })
  })

  test('a replay that is none adds nothing', () => {
    expect(splicedUsage('replay', before, own(11, 60), 60, true)).toEqual(before)
  })

  test('an exact count before keeps its prompt', () => {
    const exact = { tokens: estimated(10, 40), by_engine: true }
    expect(splicedUsage('prefix', exact, own(52, 20), 20, false)).toMatchObject({
      tokens: { prompt_tokens: 10, completion_tokens: 60 },
      by_engine: true,
    })
  })

  test('the figures that the client sees are those it pays', () => {
    const usage = {
      prompt_tokens: 52,
      completion_tokens: 20,
      total_tokens: 72,
      prompt_tokens_details: { cached_tokens: 48 },
    }
    expect(shownUsage(before)(usage)).toEqual({
      prompt_tokens: 12,
      completion_tokens: 60,
      total_tokens: 72,
      prompt_tokens_details: { cached_tokens: 12 },
    })
  })
})
