import { describe, expect, test } from 'bun:test'
import { type Canonical, canonicalJson } from '../../src/audit/canonical-json.ts'
import { leafBytes, saltedBodyHash } from '../../src/audit/leaf.ts'
import { sha256 } from '../../src/audit/hash.ts'

const double = (hex: string): number => new DataView(Uint8Array.fromHex(hex).buffer).getFloat64(0)

/** RFC 8785 appendix B: IEEE 754 bits and the text. */
const NUMBERS: [string, string][] = [
  ['0000000000000000', '0'],
  ['8000000000000000', '0'],
  ['0000000000000001', '5e-324'],
  ['8000000000000001', '-5e-324'],
  ['7fefffffffffffff', '1.7976931348623157e+308'],
  ['ffefffffffffffff', '-1.7976931348623157e+308'],
  ['4340000000000000', '9007199254740992'],
  ['c340000000000000', '-9007199254740992'],
  ['4430000000000000', '295147905179352830000'],
  ['44b52d02c7e14af5', '9.999999999999997e+22'],
  ['44b52d02c7e14af6', '1e+23'],
  ['44b52d02c7e14af7', '1.0000000000000001e+23'],
  ['444b1ae4d6e2ef4e', '999999999999999700000'],
  ['444b1ae4d6e2ef4f', '999999999999999900000'],
  ['444b1ae4d6e2ef50', '1e+21'],
  ['3eb0c6f7a0b5ed8c', '9.999999999999997e-7'],
  ['3eb0c6f7a0b5ed8d', '0.000001'],
  ['41b3de4355555553', '333333333.3333332'],
  ['41b3de4355555554', '333333333.33333325'],
  ['41b3de4355555555', '333333333.3333333'],
  ['41b3de4355555556', '333333333.3333334'],
  ['41b3de4355555557', '333333333.33333343'],
  ['becbf647612f3696', '-0.0000033333333333333333'],
  ['43143ff3c1cb0959', '1424953923781206.2'],
]

const VALUES: [string, Canonical, string][] = [
  ['literals', [null, true, false], '[null,true,false]'],
  ['empty object and list', [{}, []], '[{},[]]'],
  [
    'names by UTF-16 code units',
    { '\u20ac': 1, '\r': 2, '\ufb33': 3, '1': 4, '\u{1f600}': 5, '\u0080': 6, '\u00f6': 7 },
    '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
  ],
  ['a prefix before the longer name', { aa: 1, a: 2, '': 3, A: 4 }, '{"":3,"A":4,"a":2,"aa":1}'],
  ['names that look like numbers', { '10': 1, '9': 2, '1': 3 }, '{"1":3,"10":1,"9":2}'],
  ['nested order', { b: [{ d: 1, c: 2 }], a: {} }, '{"a":{},"b":[{"c":2,"d":1}]}'],
  ['short escapes', '\b\t\n\f\r"\\/', '"\\b\\t\\n\\f\\r\\"\\\\/"'],
  ['other control characters in lowercase hex', '\u0000\u001f\u000b', '"\\u0000\\u001f\\u000b"'],
  ['nothing else is escaped', "\u007f\u2028\u2029é€😀<>&'", '"\u007f\u2028\u2029é€😀<>&\'"'],
  [
    'bigints are strings',
    { a: 123456789012345678901234567890n, b: -1n, c: 0n },
    '{"a":"123456789012345678901234567890","b":"-1","c":"0"}',
  ],
  ['a name that is special to JavaScript', JSON.parse('{"__proto__":1,"a":2}') as Canonical, '{"__proto__":1,"a":2}'],
]

const REFUSED: [string, unknown, string][] = [
  ['NaN', { a: [1, NaN] }, '$.a[1]: NaN'],
  ['infinity', -Infinity, '$: -Infinity'],
  ['undefined member', { a: undefined }, '$.a: JSON has no undefined'],
  ['nothing in a list', Array.from({ length: 2 }), '$[0]: JSON has no undefined'],
  ['lone surrogate', 'a\ud800', 'lone surrogate'],
  ['lone surrogate in a name', { '\udc00': 1 }, 'lone surrogate'],
  ['function', () => 1, 'JSON has no function'],
  ['date', { at: new Date(0) }, '$.at: only plain objects'],
  ['bytes', [new Uint8Array(1)], '$[0]: only plain objects'],
  ['map', new Map(), 'only plain objects'],
]

describe('canonical JSON (RFC 8785)', () => {
  test.each(NUMBERS)('number %s is %s', (bits, text) => expect(canonicalJson(double(bits))).toBe(text))
  test.each(['7fffffffffffffff', '7ff0000000000000'])('number %s is refused', (bits) => {
    expect(() => canonicalJson(double(bits))).toThrow(TypeError)
  })
  test.each(VALUES)('%s', (_, value, text) => {
    expect(canonicalJson(value)).toBe(text)
    expect(canonicalJson(JSON.parse(text) as Canonical)).toBe(text)
  })
  test.each(REFUSED)('%s is refused', (_, value, says) => expect(() => canonicalJson(value as Canonical)).toThrow(says))

  test('too deep is refused, and a value that holds itself with it', () => {
    const nested = (levels: number): Canonical => (levels === 0 ? 1 : [nested(levels - 1)])
    expect(canonicalJson(nested(128))).toHaveLength(257)
    expect(() => canonicalJson(nested(129))).toThrow('more than 128 levels')
    const self: Record<string, Canonical> = {}
    self['self'] = self
    expect(() => canonicalJson(self)).toThrow('levels')
  })
})

describe('leaf of a row', () => {
  const row = {
    tenant: 'a',
    charge_nanodollars: 12n,
    request_sha256: Uint8Array.of(0, 255),
    status: 200,
    finish_reason: null,
  }
  test('columns in any order give the same bytes', () => {
    const text = '{"charge_nanodollars":"12","finish_reason":null,"request_sha256":"00ff","status":200,"tenant":"a"}'
    expect(new TextDecoder().decode(leafBytes(row))).toBe(text)
    expect(leafBytes(Object.fromEntries(Object.entries(row).reverse()))).toEqual(leafBytes(row))
  })
  test('is bounded', () => {
    const bytes = (length: number) => leafBytes({ a: 'x'.repeat(length) }).byteLength
    expect(bytes(65_535 - 8)).toBe(65_535)
    expect(() => bytes(65_535 - 7)).toThrow('65536 bytes')
  })
  test('a body enters behind its salt', () => {
    const body = sha256(Uint8Array.of(1))
    const salt = new Uint8Array(16).fill(9)
    expect(saltedBodyHash(salt, body)).toEqual(sha256(new Uint8Array([...salt, ...body])))
    expect(() => saltedBodyHash(new Uint8Array(15), body)).toThrow('16 bytes')
    expect(() => saltedBodyHash(salt, body.slice(1))).toThrow('32 bytes')
  })
})
