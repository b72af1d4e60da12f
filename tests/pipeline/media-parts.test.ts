import { expect, test } from 'bun:test'
import { jsonRange } from '../../src/engines/json-value.ts'
import { mediaParts } from '../../src/pipeline/media-parts.ts'

/** What of a prompt counts as a picture, and what as anything else that is no text. */

const countsOf = (json: string) => {
  const bytes = Buffer.from(json)
  const { parts, images } = mediaParts(bytes, jsonRange(bytes, 0, bytes.length, -1))
  return [parts, images]
}
const picture = { type: 'image_url', image_url: { url: 'https://example.org/a.png' } }
const user = (...content: unknown[]) => ({ role: 'user', content })

test.each([
  ['a text', [{ role: 'user', content: 'image_url' }], 0, 0],
  ['parts of text', [user({ type: 'text', text: 'a' }, { type: 'input_text', text: 'image_url' })], 0, 0],
  ['a picture by address', [user({ type: 'text', text: 'what is it?' }, picture)], 1, 1],
  ['inline', [user({ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(4_000)}` } })], 1, 1],
  ['two, in two messages', [user(picture), { role: 'assistant', content: 'ok' }, user(picture)], 2, 2],
  [
    'the other spellings',
    [user({ type: 'input_image', image_url: 'x' }, { type: 'image', source: { data: 'A' } })],
    2,
    2,
  ],
  ['without a type', [user({ image_url: 'x' })], 1, 1],
  ['a sound', [user({ type: 'input_audio', input_audio: { data: 'A', format: 'wav' } })], 1, 0],
  [
    'a video and a file',
    [user({ type: 'video_url', video_url: { url: 'x' } }, { type: 'file', file: { file_id: 'f' } })],
    2,
    0,
  ],
  ['a tool call', [{ role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { name: 'f' } }] }], 0, 0],
] as const)('%s', (_name, messages, parts, images) => {
  expect(countsOf(JSON.stringify(messages))).toEqual([parts, images])
  expect(countsOf(JSON.stringify(messages, null, 2))).toEqual([parts, images])
})

test('an odd spelling hides no picture', () => {
  const inside = '"image_url":{"url":"x"}'
  for (const type of [
    '"type":"im\\u0061ge_url"',
    '"type":"file","type":"image_url"',
    '"typ\\u0065":"image_url"',
    '"type":null',
  ])
    expect(countsOf(`[{"role":"user","content":[{${type},${inside}}]}]`)).toEqual([1, 1])
})
