import { describe, expect, test } from 'bun:test'

import { Failure } from '../../src/base/failure.ts'
import { jsonScanner } from '../../src/engines/json-scan.ts'
import { readBoolean, readInteger, readJson, readString } from '../../src/engines/json-value.ts'
import { forAll } from './for-all.ts'
import { madeKeys, madeObject, madeValue, space } from './json-made.ts'

const scan = jsonScanner(['model', 'n', 'stream', 'stream_options', 'stream_options.include_usage', 'messages'])
const strict = jsonScanner(['model', 'messages', 'messages.**'])
const bytesOf = (text: string): Buffer => Buffer.from(text)

const found = (text: string) => {
  const result = scan(bytesOf(text))
  if (result instanceof Failure) throw new Error(result.detail.says)
  return result
}

describe('what is valid', () => {
  // JSON.parse is the judge: these are RFC 8259's grammar, one production a line.
  const texts = [
    '{}',
    ' {} ',
    '[]',
    '[ ]',
    '""',
    'null',
    'true',
    'false',
    '0',
    '-0',
    '-1',
    '10',
    '1.5',
    '1e5',
    '1E+5',
    '1.0e-5',
    '[1,2]',
    '{"a":1}',
    '{"a":{"b":[{}]}}',
    '"\\u00e9\\n\\"\\\\\\/\\b\\f\\r\\t"',
    '"\\ud800"',
    '"\u007f\u2028"',
    '\t\r\n 1',
    '',
    ' ',
    '{',
    '}',
    '[',
    ']',
    '{]',
    '[}',
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{,}',
    '[1,]',
    '[,1]',
    '[1 2]',
    '{"a":1 "b":2}',
    '{a:1}',
    "{'a':1}",
    '{1:2}',
    '01',
    '-',
    '-a',
    '1.',
    '.5',
    '1.e5',
    '1e',
    '1e+',
    '+1',
    '0x1',
    '1_0',
    'NaN',
    'Infinity',
    'tru',
    'truE',
    'nul',
    'nulll',
    'fals',
    'undefined',
    '"',
    '"a',
    '"\\"',
    '"\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"\\',
    '"a\nb"',
    '"a\u0000b"',
    '"a\u001fb"',
    '"a\tb"',
    '{} {}',
    '{}x',
    '1 1',
    '[1]]',
    '\u00a01',
    '\u000b1',
    '/**/1',
    '{"a":1}//',
    `"${'x'.repeat(500)}`,
    `"${'x'.repeat(500)}\n"`,
    `"${'x'.repeat(501)}\\q"`,
    `"${'x'.repeat(501)}\\n"`,
  ]
  const parses = (text: string): boolean => {
    try {
      JSON.parse(text)
      return true
    } catch {
      return false
    }
  }
  test.each(texts)('%j', (text) => {
    for (const wrapped of [text, `{"x":${text}}`, `[[${text}]]`, `{"messages":[${text},${text}]}`]) {
      expect([wrapped, !(scan(bytesOf(wrapped)) instanceof Failure)]).toEqual([wrapped, parses(wrapped)])
      expect([wrapped, !(strict(bytesOf(wrapped)) instanceof Failure)]).toEqual([wrapped, parses(wrapped)])
    }
  })

  test('a control character, quote or escape at every place of a long string', () => {
    for (let skew = 0; skew < 4; skew++) {
      for (let at = 0; at < 280; at++) {
        for (const odd of [0x00, 0x1f, 0x22, 0x5c, 0x7f]) {
          const text = bytesOf(`${' '.repeat(skew)}"${'x'.repeat(280)}"`)
          text[skew + 1 + at] = odd
          const view = text.subarray(skew)
          expect([skew, at, odd, scan(view) instanceof Failure]).toEqual([skew, at, odd, odd !== 0x7f])
        }
      }
    }
  })

  test('mutated documents: the same verdict as JSON.parse', () => {
    forAll(3000, (roll) => {
      const text = madeValue(roll)
      const at = roll(text.length + 1)
      const odd = ['', '"', '\\', '{', '}', '[', ']', ',', ':', '0', 'e', '-', 'n', '\n'][roll(14)]!
      const bent = text.slice(0, at) + odd + text.slice(at + roll(2))
      // Bending can make two keys equal; that refusal is another test's.
      const got = scan(bytesOf(bent).filter(() => true))
      const duplicate = got instanceof Failure && got.code === 'field_invalid'
      const lone = !bent.isWellFormed()
      if (!duplicate && !lone) expect([bent, !(got instanceof Failure)]).toEqual([bent, parses(bent)])
    })
  })
})

describe('what is refused, and how it is said', () => {
  const deep = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)
  test.each([
    ['', 'json_invalid', 'empty'],
    ['{"model":"m"', 'json_invalid', 'stops too early, at byte 12'],
    ['{"model":"m",}', 'json_invalid', "unexpected '}' at byte 13"],
    ['{"model":"m"} x', 'json_invalid', "unexpected 'x' at byte 14"],
    ['{"a":"b\u0001"}', 'json_invalid', 'unexpected 0x01 at byte 7'],
    [deep(129), 'json_invalid', 'more than 128 levels of nesting at byte 128'],
    [`{"x":"[[[","y":${deep(128)}}`, 'json_invalid', 'more than 128 levels of nesting at byte 142'],
    ['{"model":"a","model":"b"}', 'field_invalid', '"model" stands twice'],
    ['{"model":"a","mod\\u0065l":"b"}', 'field_invalid', '"model" stands twice'],
    ['{"x":1,"\\u0078":2}', 'field_invalid', '"x" stands twice'],
    ['{"é":1,"\\u00e9":2}', 'field_invalid', '"é" stands twice'],
    ['{"":1,"":2}', 'field_invalid', '"" stands twice'],
    ['{"__proto__":1,"__proto__":2}', 'field_invalid', '"__proto__" stands twice'],
    ['{"stream_options":{"include_usage":true,"include_usage":false}}', 'field_invalid', 'in "stream_options"'],
  ])('%.40s → %s (%s)', (text, code, says) => {
    const result = scan(bytesOf(text))
    expect(result).toBeInstanceOf(Failure)
    expect((result as Failure).code).toBe(code as 'json_invalid')
    expect((result as Failure).detail.says).toContain(says)
  })

  test('names the field of a duplicate as its parameter', () => {
    const result = scan(bytesOf('{"stream_options":{"a":1,"a":2}}')) as Failure
    expect(result.detail.param).toBe('stream_options.a')
  })

  test('128 levels are accepted', () => {
    expect(scan(bytesOf(deep(128)))).not.toBeInstanceOf(Failure)
    expect(scan(bytesOf(`{"x":${deep(127)}}`))).not.toBeInstanceOf(Failure)
  })

  test('a million nested arrays', () => {
    for (const read of [scan, strict]) {
      for (const text of [deep(1_000_000), `{"messages":${deep(1_000_000)}}`, '{"a":'.repeat(1_000_000)]) {
        expect((read(bytesOf(text)) as Failure).detail.says).toContain('levels of nesting')
      }
    }
  })

  test('UTF-8: the byte at which it stops', () => {
    for (const bad of [
      [0xff],
      [0xc0, 0x80],
      [0xed, 0xa0, 0x80],
      [0xf5, 0x80, 0x80, 0x80],
      [0xe2, 0x82],
      [0x80, 0x80, 0x80, 0x80, 0x80],
    ]) {
      for (const before of [0, 1, 63, 64, 65, 500, 5000]) {
        const head = bytesOf(`"${'é'.repeat(before)}`)
        const text = Buffer.concat([head, Buffer.from(bad), bytesOf(`${'안'.repeat(700)}"`)])
        expect((scan(text) as Failure).detail.says).toContain(`not UTF-8 at byte ${head.length}.`)
      }
    }
  })

  test('keys of objects that are not read may stand twice; with ** they may not', () => {
    const text = bytesOf('{"messages":[{"role":"a"},{"content":[{"type":1,"type":2}]}]}')
    expect(scan(text)).not.toBeInstanceOf(Failure)
    expect((strict(text) as Failure).detail).toMatchObject({ param: 'messages.type' })
    expect(strict(bytesOf('{"x":{"a":1,"a":2},"messages":[{"role":1},{"role":1}]}'))).not.toBeInstanceOf(Failure)
  })

  test('duplicates among many keys, plain or escaped, at any distance', () => {
    for (const count of [2, 31, 32, 33, 34, 100, 5000]) {
      const keys = Array.from({ length: count }, (_, i) => `"k${i}"`)
      expect(scan(bytesOf(`{${keys.map((key) => `${key}:0`).join(',')}}`))).not.toBeInstanceOf(Failure)
      for (const again of ['"k0"', `"k${count >> 1}"`, `"k${count - 1}"`, '"\\u006b0"']) {
        const result = scan(bytesOf(`{${[...keys, again].map((key) => `${key}:0`).join(',')}}`))
        expect((result as Failure).code).toBe('field_invalid')
      }
    }
  })

  test('a nested object does not disturb the keys of the one around it', () => {
    expect(scan(bytesOf('{"a":1,"stream_options":{"a":1,"b":2},"b":3}'))).not.toBeInstanceOf(Failure)
    const result = scan(bytesOf('{"a":1,"stream_options":{"x":1},"a":3}')) as Failure
    expect(result.detail.param).toBe('a')
  })
})

describe('what is found', () => {
  test('ranges, types and keys', () => {
    const text =
      ' {"model" : "m\\u0031" ,"n":2.0,"stream":true,"stream_options":{"include_usage":false, "x":[]}, "messages":[1]}\n'
    const { root, bom, values } = found(text)
    const bytes = bytesOf(text)
    const show = (range: typeof root | undefined) => range && [text.slice(range.start, range.end), range.type]
    expect(bom).toBe(false)
    expect(root).toEqual({ start: 1, end: text.length - 1, type: 'object', key_start: -1 })
    expect(show(values.model)).toEqual(['"m\\u0031"', 'string'])
    expect(values.model?.key_start).toBe(text.indexOf('"model"'))
    expect(show(values.n)).toEqual(['2.0', 'number'])
    expect(show(values['stream_options.include_usage'])).toEqual(['false', 'false'])
    expect(show(values.messages)).toEqual(['[1]', 'array'])
    expect(readString(bytes, values.model)).toBe('m1')
    expect(readString(bytes, values.n)).toBeUndefined()
    expect(readInteger(bytes, values.n)).toBe(2)
    expect(readInteger(bytes, values.model)).toBeUndefined()
    expect(readBoolean(values.stream)).toBe(true)
    expect(readBoolean(values['stream_options.include_usage'])).toBe(false)
    expect(readBoolean(values.model)).toBeUndefined()
    expect(readJson(bytes, values.messages!)).toEqual([1])
  })

  test.each(['1.5', '1e400', '9007199254740993', '-9223372036854775808'])(
    '%s is no integer that a double holds',
    (text) => {
      const json = `{"n":${text}}`
      expect(readInteger(bytesOf(json), found(json).values.n)).toBeUndefined()
    },
  )

  test('a nested path is only found where it stands', () => {
    const none = found(
      '{"include_usage":true,"x":{"stream_options":{"include_usage":true}},"stream_options":[{"include_usage":true}]}',
    )
    expect(none.values['stream_options.include_usage']).toBeUndefined()
    expect(none.values.stream_options?.type).toBe('array')
    expect(found('[{"model":"m"}]').values.model).toBeUndefined()
    expect(found('"x"').root.type).toBe('string')
  })

  test('an escaped key is the key', () => expect(found('{"\\u006dodel":1}').values.model?.type).toBe('number'))

  test('a byte order mark is noted; ranges count it', () => {
    const { bom, root } = found('\ufeff{"n":1}')
    expect([bom, root.start]).toEqual([true, 3])
    expect(scan(bytesOf('{"n":\ufeff1}'))).toBeInstanceOf(Failure)
    expect(scan(bytesOf('\ufeff'))).toBeInstanceOf(Failure)
  })

  test('a document inside a larger buffer', () => {
    const view = bytesOf('xx{"model":"m"}yy').subarray(2, 15)
    expect(scan(view)).not.toBeInstanceOf(Failure)
  })

  test('made documents: every range holds the value that JSON.parse sees', () => {
    forAll(1500, (roll) => {
      const keys = [...madeKeys(roll), '"model"', '"messages"', '"\\u006e"'].filter(() => roll(4) > 0)
      const text = space(roll) + madeObject(roll, keys) + space(roll)
      const parsed = JSON.parse(text) as Record<string, unknown>
      const bytes = bytesOf(text)
      if (!text.isWellFormed()) return
      for (const result of [scan(bytes), strict(bytes)]) {
        if (result instanceof Failure) throw new Error(`${result.detail.says}: ${text}`)
        for (const [name, range] of Object.entries(result.values)) {
          if (range && !name.includes('.')) expect(readJson(bytes, range)).toEqual(parsed[name])
          if (!range && !name.includes('.')) expect(Object.hasOwn(parsed, name)).toBe(false)
        }
      }
    })
  })
})
