import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { countTokens as count_cl100k } from 'gpt-tokenizer/encoding/cl100k_base'
import { countTokens as count_o200k } from 'gpt-tokenizer/encoding/o200k_base'
import { tickMs } from '../../src/base/clock.ts'
import { openTokenCounter, WAITING_CHARS_MAX } from '../../src/engines/token-counter.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** The counter with its real process, and with processes that misbehave. */

const LONG_MS = 30_000
const logged: string[] = []
const open = (path?: string) => openTokenCounter((_level, event) => void logged.push(event), tickMs, path)
const folder = tempFolder('weir-counter')
afterAll(() => folder[Symbol.dispose]())

test('counts by either encoding, many at once, and starts only when it is asked', async () => {
  const counter = open()
  try {
    expect(counter.ready('o200k_base')).toBe(false)
    const texts = Array.from({ length: 200 }, (_, at) => `text ${at} über <|endoftext|> ${'word '.repeat(at)}`)
    const all = await Promise.all(
      texts.map((text, at) => counter.count(at % 2 ? 'cl100k_base' : 'o200k_base', [text, 'a b'], LONG_MS)),
    )
    const as_text = { disallowedSpecial: new Set<string>() }
    expect(all).toEqual(texts.map((text, at) => (at % 2 ? count_cl100k : count_o200k)(text, as_text) + 2))
    expect([counter.ready('o200k_base'), counter.ready('cl100k_base')]).toEqual([true, true])
  } finally {
    counter.stop()
  }
})

test('more text than may wait is not counted, and what was too late is forgotten', async () => {
  const counter = open()
  try {
    const half = 'a b '.repeat(WAITING_CHARS_MAX / 8)
    const [late, also_late, too_much] = [half, half, 'x'].map((text) => counter.count('o200k_base', [text], 1))
    expect(await too_much).toBeUndefined()
    expect([await late, await also_late]).toEqual([undefined, undefined])
    // Its room comes back with its answer.
    await eventually(async () => (await counter.count('o200k_base', ['hello world'], LONG_MS)) === 2, 30_000)
  } finally {
    counter.stop()
  }
})

test('however often an encoding is wished for, the process is asked for it once', async () => {
  const path = `${folder.path}/mute.ts`
  const asked = `${folder.path}/asked`
  await Bun.write(path, `process.on("message", () => require("node:fs").appendFileSync(${JSON.stringify(asked)}, "x"))`)
  const counter = open(path)
  for (let nth = 0; nth < 100; nth++) counter.warm('o200k_base')
  // What is asked after them has its turn after them.
  const last = counter.count('cl100k_base', ['a'], LONG_MS)
  await eventually(async () => expect((await Bun.file(asked).text()).length).toBeGreaterThanOrEqual(2), 10_000)
  expect(await Bun.file(asked).text()).toBe('xx')
  counter.stop()
  expect(await last).toBeUndefined()
})

test('a process that ends leaves nobody waiting, and is not started again at once', async () => {
  const path = `${folder.path}/ends.ts`
  const starts = `${folder.path}/starts`
  await Bun.write(
    path,
    `require("node:fs").appendFileSync(${JSON.stringify(starts)}, "x"); process.on("message", () => process.exit(1))`,
  )
  const counter = open(path)
  expect(await counter.count('o200k_base', ['a'], LONG_MS)).toBeUndefined()
  expect(await counter.count('o200k_base', ['a'], LONG_MS)).toBeUndefined()
  expect(await Bun.file(starts).text()).toBe('x')
  counter.stop()
})

test('a process that says nothing costs its time limit and no more', async () => {
  const path = `${folder.path}/mute.ts`
  await Bun.write(path, 'process.on("message", () => undefined)')
  const counter = open(path)
  expect(await Promise.all(Array.from({ length: 40 }, () => counter.count('o200k_base', ['a'], 100)))).toEqual(
    Array(40).fill(undefined),
  )
  counter.stop()
})

test('what waits when it is stopped is told', async () => {
  const counter = open()
  const waiting = counter.count('o200k_base', ['a'], LONG_MS)
  counter.stop()
  expect(await waiting).toBeUndefined()
})
