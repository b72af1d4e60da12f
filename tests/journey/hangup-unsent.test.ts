import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { muteServer } from '../contract/mute-server.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { never } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/** A client that leaves while no connection comes up pays nothing; one whose prompt an engine had pays for the prompt. */

const mute = await muteServer()
const cast = newCast({ server: { ping_ms: 200 } })
const urls = [`${mute.origin}/v1`]
const hedge_ms = 100

const alone = cast.part([], { urls })
const alone_whole = cast.part([], { urls })
const drains = cast.part([], { urls, engine: { on_disconnect: 'drain' }, timeouts: { connect_ms: 1_000 } })
const both = cast.part([], { urls: [...urls, ...urls], hedge_ms })
const second_has_it = cast.part([[never]], { urls, hedge_ms })
const has_it = cast.part([[never]])

beforeAll(cast.open)
afterAll(async () => {
  await cast.close()
  await mute[Symbol.asyncDispose]()
})

/** Of 2 prompt tokens at 2 USD a million. */
const PROMPT = { prompt_tokens: 2, completion_tokens: 0, charge_nanodollars: 4_000, usage_source: 'estimated' }
const NOTHING = { prompt_tokens: 0, completion_tokens: 0, charge_nanodollars: 0 }

const CASES: readonly (readonly [name: string, part: Part, stream: boolean, attempts: number, pays: object])[] = [
  ['a stream whose connect hangs', alone, true, 1, NOTHING],
  ['a whole answer whose connect hangs', alone_whole, false, 1, NOTHING],
  ['a stream whose connect hangs, of an engine that drains', drains, true, 1, NOTHING],
  ['a hedged stream, and both connects hang', both, true, 2, NOTHING],
  ['a hedged stream, and the second engine has the prompt', second_has_it, true, 2, PROMPT],
  ['a stream whose engine has the prompt', has_it, true, 1, PROMPT],
]
for (const [name, part, stream, attempts, pays] of CASES)
  test(name, async () => {
    using client = await connectRaw(cast.house().port)
    const body = { model: part.model, stream, messages: [{ role: 'user', content: 'hi' }] }
    await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, body))
    if (stream) await eventually(() => client.unread().includes(': ping'), 3_000)
    else await Bun.sleep(300)
    client.close()
    expect(await cast.rowsOf(part, 1)).toMatchObject([
      { ending: 'cut_by_client', failure: 'client_gone', attempts, ...pays },
    ])
  })

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
