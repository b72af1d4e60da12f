import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { CH, cut, D, DONE, end, json, never, raw, script, type Script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part, type PartSettings } from './cast.ts'

setDefaultTimeout(60_000)

/** A second engine is asked when the first is slow with its first token or its whole answer; the first to answer wins. */

const cast = newCast()
const says = (text: string, ...before: Script) =>
  script(before, sse200, D(CH({ content: text })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)
const hedge: PartSettings = { hedge_ms: 100 }
const short: PartSettings = {
  ...hedge,
  timeouts: { first_byte_ms: 400, first_token_ms: 400, between_tokens_ms: 400, connect_ms: 200 },
}
const error = (status: number) => json(status, { error: { message: `says ${status}`, code: status } })

const quick = cast.part([says('first'), says('second')], hedge)
const slow = cast.part([script(wait(3_000), says('first')), says('second')], hedge)
const slow_token = cast.part(
  [script(sse200, wait(3_000), D(CH({ content: 'first' })), DONE, end), says('second')],
  hedge,
)
const slower = cast.part([script(wait(300), says('first')), script(wait(3_000), says('second'))], hedge)
const first_fails = cast.part([script(wait(200), error(500)), script(wait(300), says('second'))], hedge)
const second_fails = cast.part([script(wait(400), says('first')), error(500)], hedge)
const both_fail = cast.part([script(wait(200), error(500)), error(503), says('third')], hedge)
const refuses = cast.part([script(wait(3_000), says('first')), error(400)], hedge)
const silent = cast.part([[never], script(wait(500), says('second'))], {
  ...short,
  timeouts: { ...short.timeouts, first_byte_ms: 800 },
})
const breaks = cast.part(
  [
    [never],
    script(sse200, D(CH({ content: 'sec' })), wait(30), cut),
    script(sse200, D(CH({ content: 'ond' })), D(CH({}, 'stop')), DONE, end),
  ],
  { ...hedge, engine: { can: ['prefix_continuation'] } },
)
const stalls = cast.part([script(wait(3_000), says('first')), script(sse200, D(CH({ content: 'sec' })), never)], short)
const alone = cast.part([script(wait(300), says('first'))], hedge)
const whole = cast.part([script(wait(300), json(200, WHOLE('first', 5, 1))), json(200, WHOLE('second', 5, 1))], hedge)
const answer = (text: string, ms = 0) => script(wait(ms), json(200, WHOLE(text, 5, 1)))
/** A budget, so that every call holds what it may cost. */
const paid = { model: { budgets: [{ usd: '1', per: 'month' }] } }
const whole_first = cast.part([answer('first'), answer('second')], { hedge: { whole_after_ms: 300 }, ...paid })
const whole_late = cast.part([answer('first', 3_000), answer('second')], { hedge: { whole_after_ms: 100 }, ...paid })
const whole_later = cast.part([answer('first', 300), answer('second', 3_000)], {
  hedge: { whole_after_ms: 100 },
  ...paid,
})
const whole_fails = cast.part([answer('first', 400), error(500)], { hedge: { whole_after_ms: 100 }, ...paid })
const whole_refused = cast.part([answer('first', 3_000), error(400)], { hedge: { whole_after_ms: 100 } })
const measured = { hedge: { percentile: 90, min_ms: 20, after_ms: 60_000 } }
const percentile = cast.part([says('first'), says('second')], measured)
const whole_percentile = cast.part([answer('first'), answer('second')], measured)
/** The first half of an answer. */
const HALF = JSON.stringify(WHOLE('one two three four five six seven', 5, 7)).slice(0, 160)
const leaves = cast.part([[never], [never]], hedge)
const leaves_half = cast.part(
  [
    [never],
    script(raw('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n' + HALF), never),
  ],
  { hedge: { whole_after_ms: 100 } },
)
const not_set = cast.part([script(wait(300), says('first')), says('second')])

beforeAll(cast.open)
afterAll(cast.close)

const asked = (part: Part) => part.engines.map((engine) => engine.requests.length)

/** Who wins, how often each was asked, and the attempts of the row. */
const RACES: readonly (readonly [name: string, part: Part, text: string, asked: number[], engine: number])[] = [
  ['the first in time: nobody else is asked', quick, 'first', [1, 0], 0],
  ['not set: nobody else is asked', not_set, 'first', [1, 0], 0],
  ['the first late with its head', slow, 'second', [1, 1], 1],
  ['the first late with its token', slow_token, 'second', [1, 1], 1],
  ['the second later still', slower, 'first', [1, 1], 0],
  ['the first fails meanwhile', first_fails, 'second', [1, 1], 1],
  ['the second fails', second_fails, 'first', [1, 1], 0],
  ['both fail: a third', both_fail, 'third', [1, 1, 1], 2],
  ['the first runs into its limit, the second does not', silent, 'second', [1, 1], 1],
  ['the second wins and breaks off: a third goes on', breaks, 'second', [1, 1, 1], 2],
  ['nobody else is there', alone, 'first', [1], 0],
]
for (const [name, part, text, times, engine] of RACES)
  test(name, async () => {
    const got = await cast.stream(part)
    expect([got.text(), got.done, got.errors()]).toEqual([text, true, []])
    expect(asked(part)).toEqual([...times])
    const attempts = times.reduce((sum, count) => sum + count, 0)
    const row = await cast.row(got.id)
    expect(row).toMatchObject({ ending: 'whole', attempts, engine: part.names[engine]! })
    const page: any = await (await cast.house().admin('GET', `calls/${got.id}`)).json()
    expect(page.tried.length).toBe(attempts === 1 ? 0 : attempts)
    if (attempts > 1) expect(page.tried[1]).toMatchObject({ engine: part.names[1], because: 'hedge' })
    // The loser hears of it while it still waits.
    for (const one of part.engines) await eventually(() => expect(one.calls.now).toBe(0), 2_000)
  })

test('a slow engine is no sick one', async () => {
  for (const name of slow.names) expect(await cast.health(name)).toMatchObject({ health: 'healthy' })
})

test('a refusal of either is an answer', async () => {
  const response = await cast.post(refuses, { stream: true })
  expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('says 400')])
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({ attempts: 2, ending: 'refused' })
})

test('the winner is watched like any engine', async () => {
  const got = await cast.stream(stalls)
  expect(got.text()).toBe('sec')
  expect(got.errors()).toMatchObject([{ code: 'engine_timeout' }])
  expect(await cast.row(got.id)).toMatchObject({ ending: 'cut_by_engine', engine: stalls.names[1], attempts: 2 })
})

test('an answer that comes whole is not raced for unless its own time is set', async () => {
  expect(await (await cast.post(whole)).text()).toContain('first')
  expect(asked(whole)).toEqual([1, 0])
})

const WHOLE_RACES: readonly (readonly [name: string, part: Part, text: string, asked: number[], engine: number])[] = [
  ['in time: nobody else is asked', whole_first, 'first', [1, 0], 0],
  ['late', whole_late, 'second', [1, 1], 1],
  ['late, and the second later still', whole_later, 'first', [1, 1], 0],
  ['late, and the second fails', whole_fails, 'first', [1, 1], 0],
]
const held: number[] = []
for (const [name, part, text, times, engine] of WHOLE_RACES)
  test(`a whole answer ${name}`, async () => {
    const response = await cast.post(part)
    expect(await response.text()).toContain(text)
    expect(response.headers.get('x-weir-engine')).toBe(part.names[engine]!)
    expect(asked(part)).toEqual([...times])
    const attempts = times.reduce((sum, count) => sum + count, 0)
    // One row, one charge: 5 prompt tokens at 2 USD and one token at 8 USD per million.
    const [row] = await cast.rowsOf(part, 1)
    expect(row).toMatchObject({ ending: 'whole', attempts, engine: part.names[engine]!, charge_nanodollars: 18_000 })
    // One hold, as large as that of a call that only one engine heard of.
    held.push(Number(row!['hold_nanodollars']))
    expect(held.at(-1)).toBeGreaterThan(18_000)
    expect(new Set(held).size).toBe(1)
    for (const one of part.engines) await eventually(() => expect(one.calls.now).toBe(0), 2_000)
  })

test('a refusal of a whole answer by either is an answer', async () => {
  const response = await cast.post(whole_refused)
  expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('says 400')])
  await cast.rowsOf(whole_refused, 1)
})

test.each([
  ['streams', percentile, true, says('first', wait(3_000))],
  ['whole answers', whole_percentile, false, answer('first', 3_000)],
] as const)('the delay of %s follows what the last answers took', async (_name, part, stream, late) => {
  for (let call = 0; call < 60; call++) await (await cast.post(part, { stream })).text()
  const hedges_before = asked(part)[1]!
  // At the 90th percentile few were late, and the retry budget pays for those.
  expect(hedges_before).toBeLessThan(20)
  part.engines[0]!.play([late])
  const began = performance.now()
  const response = await cast.post(part, { stream })
  expect(await response.text()).toContain('second')
  // Long before the fixed time, and before the first engine.
  expect(performance.now() - began).toBeLessThan(2_500)
  expect(asked(part)[1]).toBe(hedges_before + 1)
  await cast.rowsOf(part, 61)
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({
    attempts: 2,
    engine: part.names[1]!,
    ending: 'whole',
  })
})

test('a client that leaves takes both with it', async () => {
  const leaving = new AbortController()
  const response = cast.post(leaves, { stream: true }, leaving.signal).catch(() => undefined)
  await leaves.engines[1]!.request(0)
  leaving.abort()
  await response
  for (const engine of leaves.engines) expect((await engine.hangUp(0)).by).toBe('peer')
  const [row] = await cast.rowsOf(leaves, 1)
  expect(row).toMatchObject({ ending: 'cut_by_client', attempts: 2 })
  const told = (await (await cast.house().admin('GET', `calls/${row!['id']}/explain`)).json()) as any
  expect(told.decision.attempts).toMatchObject([{ outcome: 'client_gone' }, { outcome: 'client_gone' }])
})

test('a client that leaves is charged for what the second engine gave of a whole answer', async () => {
  const leaving = new AbortController()
  const response = cast.post(leaves_half, {}, leaving.signal).catch(() => undefined)
  await leaves_half.engines[1]!.request(0)
  await Bun.sleep(100)
  leaving.abort()
  await response
  const [row] = await cast.rowsOf(leaves_half, 1)
  expect(row).toMatchObject({ ending: 'cut_by_client', usage_source: 'estimated' })
  expect(Number(row!['completion_tokens'])).toBeGreaterThan(0)
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
