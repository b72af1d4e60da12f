import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { body, cut, head, never, script, type Script, wait } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/**
 * A client that leaves pays for what the engine made that was answering then, and not for the half answer of one that had
 * broken off before: the row names the engine of which the tokens are.
 */

const cast = newCast()
const LONG = 'One two three four five six seven eight nine ten eleven twelve. '.repeat(20)
const SHORT = 'One two three.'
/** So much of a whole answer: the head, and the text without its end. */
const half = (text: string): Script =>
  script(
    head(200, { 'content-type': 'application/json' }),
    body(`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"${text}`),
  )
const breaks_off = script(half(LONG), wait(80), cut)
const says_nothing = script(never)
const says_little = script(half(SHORT), never)
/** Beside it a second engine is asked before it breaks off. */
const late = script(half(LONG), wait(400), cut)
const hedge = { hedge: { after_ms: 10_000, whole_after_ms: 100 } }

const PARTS: readonly (readonly [name: string, part: Part, last: number, tokens: number])[] = [
  ['nothing came of the next', cast.part([breaks_off, says_nothing]), 1, 0],
  ['a little came of the next', cast.part([breaks_off, says_little]), 1, 4],
  ['hedged: nothing came of the second', cast.part([late, says_nothing], hedge), 1, 0],
  ['hedged: a little came of the second', cast.part([late, says_little], hedge), 1, 4],
  ['hedged: the second broke off', cast.part([says_nothing, breaks_off], hedge), 0, 0],
  ['hedged: the second broke off, a little came of the first', cast.part([says_little, breaks_off], hedge), 0, 4],
]

/** Both are asked when the client leaves. */
const BOTH: readonly (readonly [name: string, part: Part, last: number, tokens: number])[] = [
  ['only of the second', cast.part([script(never), says_little], hedge), 1, 4],
  ['only of the first', cast.part([says_little, script(never)], hedge), 0, 4],
  ['of both, more of the second', cast.part([says_little, script(half(LONG), never)], hedge), 1, 261],
]

beforeAll(cast.open)
afterAll(cast.close)

/** A call whose client leaves at some time after the second engine was asked. */
const leaves = async (part: Part, when: () => Promise<unknown>) => {
  using client = await connectRaw(cast.house().port)
  const given = { model: part.model, messages: [{ role: 'user', content: 'hi' }] }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, given))
  await part.engines[1]!.request(0)
  await when()
  await Bun.sleep(100)
  client.close()
  return (await cast.rowsOf(part, 1))[0]!
}

test.each(PARTS)('%s', async (_name, part, last, tokens) => {
  const broken = part.names[1 - last]!
  const hasBroken = () =>
    eventually(() =>
      cast
        .house()
        .logged('engine_failed')
        .some(({ engine }) => engine === broken),
    )
  expect(await leaves(part, hasBroken)).toMatchObject({
    ending: 'cut_by_client',
    engine: part.names[last]!,
    completion_tokens: tokens,
    attempts: 2,
  })
})

test.each(BOTH)('hedged, and both are told to stop: half an answer came %s', async (_name, part, last, tokens) => {
  expect(await leaves(part, async () => undefined)).toMatchObject({
    ending: 'cut_by_client',
    engine: part.names[last]!,
    completion_tokens: tokens,
    attempts: 2,
  })
})
