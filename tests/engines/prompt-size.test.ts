import { describe, expect, test } from 'bun:test'

import { Failure } from '../../src/base/failure.ts'
import { jsonScanner } from '../../src/engines/json-scan.ts'
import { promptSize, promptTextBytes } from '../../src/engines/prompt-size.ts'
import { forAll } from './for-all.ts'
import { madeValue } from './json-made.ts'

const scan = jsonScanner(['x'])
const size = (text: string) => {
  const bytes = Buffer.from(`{"x":${text}}`)
  const result = scan(bytes)
  if (result instanceof Failure) throw new Error(result.detail.says)
  expect(promptTextBytes(bytes, result.values.x!)).toBe(promptSize(bytes, result.values.x!).text_bytes)
  const { text_bytes, token_ids, media } = promptSize(bytes, result.values.x!)
  return [text_bytes, token_ids, media]
}

describe('promptSize', () => {
  const image = `data:image/png;base64,${'A'.repeat(1000)}`
  test.each([
    ['"hello"', [5, 0, 0]],
    ['""', [0, 0, 0]],
    ['null', [0, 0, 0]],
    ['["ab", "c" , ""]', [3, 0, 0]],
    ['[1, -2,3.5 ,4]', [0, 4, 0]],
    ['[[1,2],[3]]', [0, 3, 0]],
    ['{"a":1,"b": 2}', [0, 0, 0]],
    ['[{"role":"user","content":"안녕"}]', [4 + 6, 0, 0]],
    ['"\\n\\"\\\\"', [3, 0, 0]],
    ['"\\u0041\\u00e9\\uc548"', [1 + 2 + 3, 0, 0]],
    ['"\\ud83c\\udf0d"', [4, 0, 0]],
    ['"\\u007f\\u0080\\u07ff\\u0800\\uD7FF\\uE000"', [1 + 2 + 2 + 3 + 3 + 3, 0, 0]],
    [`"${'x'.repeat(70)}\\n${'y'.repeat(70)}"`, [141, 0, 0]],
    ['["a:","b"]', [3, 0, 0]],
    ['{"k" :\n"v"}', [1, 0, 0]],
    [`[{"type":"image_url","image_url":{"url":"${image}","detail":"low"}}]`, [9 + 3, 0, 1]],
    [`[{"type":"image_url","image_url":"${image.replace('data', 'DATA')}"}]`, [9, 0, 1]],
    ['[{"image_url":{"url":"https://a/b"}}]', [11, 0, 0]],
    ['[{"input_audio":{"data":"UklGRg==","format":"wav"}}]', [3, 0, 1]],
    ['[{"file":{"file_data":"JVBERg==","filename":"a.pdf"}}]', [5, 0, 1]],
  ])('%.60s', (text, want) => expect(size(text)).toEqual(want))

  test.each([
    `"${image}"`,
    `["${image}"]`,
    `[{"content":"${image}"}]`,
    `[{"text":"${image}"}]`,
    `{"url":["${image}"]}`,
  ])('text cannot pass for media: %.30s', (text) => expect(size(text)[2]).toBe(0))

  test('made values: the same as walking the parsed value', () => {
    const walk = (value: unknown, in_array: boolean): number[] => {
      if (typeof value === 'string') return [utf8(value), 0]
      if (typeof value === 'number') return [0, in_array ? 1 : 0]
      if (typeof value !== 'object' || value === null) return [0, 0]
      const below = Object.values(value).map((one) => walk(one, Array.isArray(value)))
      return below.reduce((sum, one) => [sum[0]! + one[0]!, sum[1]! + one[1]!], [0, 0])
    }
    // A lone surrogate counts 2; encoded it would be the 3 bytes of U+FFFD.
    const utf8 = (text: string): number => {
      let bytes = 0
      for (const char of text) bytes += char.isWellFormed() ? Buffer.byteLength(char) : 2
      return bytes
    }
    forAll(1000, (roll) => {
      const text = Buffer.from(madeValue(roll)).toString()
      expect(size(text).slice(0, 2)).toEqual(walk(JSON.parse(text), false))
    })
  })
})
