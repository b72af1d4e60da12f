import { expect, test } from 'bun:test'
import { closeJson } from '../../src/engines/half-json.ts'

/** Documents that broke off at any byte. */

const DOCUMENT = {
  id: 'x',
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: 'The "end",\n\\ of naïve 你好 👍 and\u0007', n: -1.5e3 },
      ok: true,
      no: null,
    },
  ],
  usage: { a: [], b: {} },
}
const FULL = DOCUMENT.choices[0]!.message.content

for (const [name, json] of [
  ['as it is', JSON.stringify(DOCUMENT)],
  ['with white space', JSON.stringify(DOCUMENT, null, 2)],
  [
    'with escapes',
    JSON.stringify(DOCUMENT).replace(
      /[\u0080-\uffff]/g,
      (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
    ),
  ],
] as const)
  test(`${name}: the text that came is there, at every byte`, () => {
    const bytes = Buffer.from(json)
    let before = -1
    let closed = 0
    for (let size = 1; size <= bytes.length; size++) {
      const found = closeJson(bytes.subarray(0, size)) as typeof DOCUMENT | undefined
      if (found === undefined) continue
      closed++
      const content = found.choices?.[0]?.message?.content
      if (typeof content !== 'string') continue
      expect(FULL.startsWith(content.replace(/[\ud800-\udbff]$/, ''))).toBe(true)
      // Never less than a byte ago.
      expect(content.length).toBeGreaterThanOrEqual(before)
      before = content.length
    }
    expect(before).toBe(FULL.length)
    // All but those that end inside a word or a number.
    expect(closed).toBeGreaterThan(bytes.length * 0.9)
    expect(closeJson(bytes)).toEqual(DOCUMENT)
  })

test('what is no JSON is none', () => {
  for (const text of ['<html>', '}', '{"a" 1', '['.repeat(2_000)]) expect(closeJson(Buffer.from(text))).toBeUndefined()
})
