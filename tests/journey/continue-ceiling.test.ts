import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { CH, cut, D, DONE, end, script, sse200, US, wait } from '../kit/script.ts'
import { newCast } from './cast.ts'

setDefaultTimeout(60_000)

/**
 * An answer whose client named no bound has one of the house's, for which is held. Whoever goes on with it gets what is
 * left of that: the whole anew would come to more than is held.
 */

const cast = newCast({ tenants: [{ name: 't', budgets: [{ usd: '100' }] }] })
const say = (content: string) => D(CH({ content }))
const six = script(sse200, ['a ', 'b ', 'c ', 'd ', 'e ', 'f '].map(say), wait(30), cut)
const rest = script(sse200, ['g ', 'h '].map(say), D(CH({}, 'stop')), D(US(20, 2)), DONE, end)
const all = script(
  sse200,
  ['a ', 'b ', 'c ', 'd ', 'e ', 'f ', 'g ', 'h '].map(say),
  D(CH({}, 'stop')),
  D(US(10, 8)),
  DONE,
  end,
)
const settings = (ceiling_tokens: number, can: string[]) => ({ engine: { can }, of_model: { ceiling_tokens } })
const continued = cast.part([six, rest], settings(10, ['prefix_continuation']))
const unbounded = cast.part([six, rest], settings(10, ['prefix_continuation']))
const replayed = cast.part([six, all], settings(10, []))
const used_up = cast.part([six, all], settings(6, ['prefix_continuation']))

beforeAll(cast.open)
afterAll(cast.close)

test.each([
  ['goes on', continued, 4, {}],
  ['goes on, of a client that named a bound that is none', unbounded, 4, { max_tokens: -1 }],
  ['replays', replayed, 10, {}],
  ['replays, as nothing is left to go on with', used_up, 6, {}],
])('one that %s', async (_name, part, tokens_max, extra) => {
  const got = await cast.stream(part, extra)
  expect(got.done).toBe(true)
  const [first, second] = part.engines.map((engine) => engine.requests[0]!.json())
  expect([first.max_tokens, second.max_tokens]).toEqual([part === used_up ? 6 : 10, tokens_max])
  expect(second.continue_final_message === true).toBe(part === continued || part === unbounded)
})
