import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, D, DONE, end, json, script, sse200, US, WHOLE } from '../kit/script.ts'
import { forAllAsync } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/** `ledger.durability: strict`: the end of an answer waits for the disk, and the client may leave meanwhile. */

const cast = newCast({ ledger: { durability: 'strict' } })
const streamed = cast.part([script(sse200, D(CH({ content: 'a' })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)])
const whole = cast.part([json(200, WHOLE('a', 5, 1))])

beforeAll(cast.open)
afterAll(cast.close)

test('answers are whole', async () => {
  const got = await cast.stream(streamed)
  expect(got.done).toBe(true)
  expect(got.text()).toBe('a')
  expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', completion_tokens: 1 })
  expect(((await (await cast.post(whole)).json()) as any).choices[0].message.content).toBe('a')
})

for (const [name, part] of [
  ['a stream', streamed],
  ['a whole answer', whole],
] as const satisfies readonly (readonly [string, Part])[])
  test(`a client that leaves ${name} at any moment leaves one row and nothing in flight`, async () => {
    await forAllAsync(40, async (roll) => {
      using client = await connectRaw(cast.house().port)
      const body = { model: part.model, stream: part === streamed, messages: [{ role: 'user', content: 'hi' }] }
      await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, body))
      await Bun.sleep(roll(6))
      if (roll(2)) client.close()
      else client.reset()
    })
    const rows = await cast.rowsAfter(part)
    // The 40, and the one before them; whoever left before the house had read the request never made a call.
    expect(rows.length).toBeLessThanOrEqual(41)
    expect(rows.filter(({ ending }) => ending !== 'whole' && ending !== 'cut_by_client')).toEqual([])
    expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length)
  })
