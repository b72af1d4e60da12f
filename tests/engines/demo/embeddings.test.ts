import { afterAll, expect, test } from 'bun:test'
import { vectorOf } from '../../../src/engines/demo/embeddings.ts'
import { startDemoEngine } from '../../../src/engines/demo/engine.ts'
import { answer, at_once } from './ask.ts'

const engine = startDemoEngine(at_once)
afterAll(() => engine.stop())

const embed = (fields: object) => answer(engine, 'embeddings', { model: 'demo-embed', ...fields })
const dot = (one: ArrayLike<number>, other: ArrayLike<number>) =>
  Array.from(one).reduce((sum, value, at) => sum + value * other[at]!, 0)

test('base64 and numbers are the same vector', async () => {
  const input = ['The river is high.', '강이 높다']
  const numbers = await embed({ input })
  const base64 = await embed({ input, encoding_format: 'base64' })
  expect(numbers).toMatchObject({ object: 'list', model: 'demo-embed', usage: { prompt_tokens: 9, total_tokens: 9 } })
  expect(numbers.data.map((row: any) => [row.index, row.object, row.embedding.length])).toEqual([
    [0, 'embedding', 384],
    [1, 'embedding', 384],
  ])
  for (const [at, row] of base64.data.entries()) {
    const bytes = Buffer.from(row.embedding, 'base64')
    const decoded = Array.from({ length: bytes.length / 4 }, (_, place) => bytes.readFloatLE(4 * place))
    expect(decoded).toEqual(numbers.data[at].embedding)
  }
})

test.each([1, 2, 64, 1536])('%i dimensions, of length one', async (dimensions) => {
  const [row] = (await embed({ input: 'a lock keeper', dimensions })).data
  expect(row.embedding.length).toBe(dimensions)
  expect(dot(row.embedding, row.embedding)).toBeCloseTo(1, 5)
})

test.each(['', ' ', '?!', '🌍'])('%p has a vector too', (text) => {
  const vector = vectorOf(text, 8)
  expect(dot(vector, vector)).toBeCloseTo(1, 5)
})

test('token ids are inputs, and every input is one row', async () => {
  expect((await embed({ input: [1, 2, 3] })).data.length).toBe(1)
  const two = await embed({ input: [[1, 2], [3]] })
  expect([two.data.length, two.usage.prompt_tokens]).toEqual([2, 3])
})

test('texts that share words are nearer than texts that do not', () => {
  const ask = vectorOf('Which invoice is overdue?', 384)
  const near = vectorOf('An invoice is overdue after thirty days.', 384)
  const far = vectorOf('Herons nest near slow water.', 384)
  expect(dot(ask, near)).toBeGreaterThan(dot(ask, far) + 0.2)
})
