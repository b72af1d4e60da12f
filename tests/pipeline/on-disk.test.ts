import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { tickMs } from '../../src/base/clock.ts'
import { ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import type { House } from '../../src/pipeline/house.ts'
import { hotPath } from '../../src/pipeline/pipeline.ts'
import { readSse } from '../kit/sse-read.ts'
import { arrival, unitHouseAtEngine } from './unit-house.ts'

setDefaultTimeout(60_000)

/** Strict: nobody is told of a whole answer whose record is not on the disk. The disk here fails as long as it is told to. */

let stage: Awaited<ReturnType<typeof unitHouseAtEngine>>
beforeAll(async () => void (stage = await unitHouseAtEngine('a')))
afterAll(() => stage[Symbol.asyncDispose]())

const serve = hotPath(
  ({ code, status, detail }) => new Response(JSON.stringify({ code, says: detail.says }), { status }),
)

/** A worker whose disk fails so many times. */
const houseOf = (fails: number): House => {
  let left = fails
  const synced = async () => (left-- > 0 ? new Failure('journal_full', { cause: 'EIO' }) : undefined)
  const { append, has_room } = stage.unit.house.journal
  return { ...stage.unit.house, watch: stage.watch, tick: tickMs, journal: { append, has_room, synced } }
}

const ask = (house: House, stream: boolean) => {
  const body = JSON.stringify({ model: 'm1', stream, messages: [{ role: 'user', content: 'hi' }] })
  return serve(arrival({ body, headers: { 'content-type': 'application/json' } }), house)
}

test('a disk that comes back in time costs a delay', async () => {
  const [whole, stream] = await Promise.all([ask(houseOf(2), false), ask(houseOf(2), true)])
  expect(await whole.json()).toMatchObject({ choices: [{ message: { content: 'a' } }] })
  const read = await readSse(stream)
  expect([read.text(), read.done, read.errors()]).toEqual(['a', true, []])
})

test('a disk that does not: the end is withheld, and the client is told', async () => {
  const dead = Number.POSITIVE_INFINITY
  const data = arrival({ body: '{}', headers: { 'content-type': 'application/json' } }, ENDPOINTS.data)
  const [whole, stream, echoed] = await Promise.all([
    ask(houseOf(dead), false),
    ask(houseOf(dead), true).then(readSse),
    serve(data, houseOf(dead)),
  ])
  for (const refused of [whole, echoed]) {
    expect(refused.status).toBe(503)
    expect(await refused.json()).toMatchObject({ code: 'journal_full', says: expect.stringContaining('is charged') })
  }
  expect([stream.text(), stream.done]).toEqual(['a', false])
  expect(stream.errors()).toMatchObject([{ code: 'journal_full' }])
  expect(stage.unit.inFlight()).toBe(0)
})
