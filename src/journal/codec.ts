import { limits } from '../base/limits.ts'
import { code_max, type FieldType, KINDS } from './fields.ts'
import type { JournalRecord } from './record.ts'

/**
 * A record as the payload of a frame: a fixed part, then the texts. Little-endian, unaligned.
 *
 *     offset  bytes
 *          0      1  code of the kind
 *          1      1  0
 *          2      2  size of the fixed part, these 4 bytes included
 *          4      …  the fields in the order of their table; of a text only its length in bytes (u16)
 *          …      …  the texts in the same order
 *
 * A reader takes the size of the fixed part from the payload: fields that an older writer did not know are 0, false,
 * empty or the first choice; fields of a newer writer stand behind the known ones and are passed over.
 *
 * Both directions are straight-line functions compiled from the table when the module loads, so that no property is
 * looked up by a variable name: 0.18 µs a record where a loop over the same table took 0.28 µs.
 */
export type Area = { readonly bytes: Buffer; readonly plain: Uint8Array; readonly view: DataView }

/** Memory seen in every way that the codec wants: what is cut out of a Buffer would be a Buffer, whose constructor is slow. */
export const areaOf = (bytes: Uint8Array): Area => ({
  bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
  plain: new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength),
  view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
})

type Encode = (area: Area, at: number, record: JournalRecord) => number
type Decode = (area: Area, at: number, length: number) => JournalRecord | undefined

const PREFIX_BYTES = 4
const WIDTHS = { u8: 1, u16: 2, u32: 4, i64: 8, f64: 8, flag: 1, hash: 32, text: 2 } as const
const widthOf = (type: FieldType): number => (typeof type === 'string' ? WIDTHS[type] : 1)

/** Stores a number as the nearest one in range; `NaN` fails both comparisons and becomes 0. */
const clamped = (value: string, max: number): string => `${value} > 0 ? (${value} < ${max} ? ${value} : ${max}) : 0`

const STORES: Record<keyof typeof WIDTHS, (value: string, at: string) => string> = {
  u8: (value, at) => `n = ${value}; view.setUint8(${at}, ${clamped('n', 0xff)});`,
  u16: (value, at) => `n = ${value}; view.setUint16(${at}, ${clamped('n', 0xffff)}, true);`,
  u32: (value, at) => `n = ${value}; view.setUint32(${at}, ${clamped('n', 0xffffffff)}, true);`,
  i64: (value, at) =>
    `n = Math.min(Math.max(Math.trunc(${value}), ${-Number.MAX_SAFE_INTEGER}), ${Number.MAX_SAFE_INTEGER}) || 0;` +
    `view.setUint32(${at}, n, true); view.setInt32(${at} + 4, Math.floor(n / 4294967296), true);`,
  f64: (value, at) => `view.setFloat64(${at}, ${value}, true);`,
  flag: (value, at) => `view.setUint8(${at}, ${value} ? 1 : 0);`,
  hash: (value, at) => `if (${value}.length !== 32) wrongHash(${value}); bytes.set(${value}, ${at});`,
  text: (value, at) =>
    `n = bytes.utf8Write(${value}, end, ${limits.text_bytes_max}); view.setUint16(${at}, n, true); end += n;`,
}

const LOADS: Record<keyof typeof WIDTHS, { load: (at: string) => string; absent: string }> = {
  u8: { load: (at) => `view.getUint8(${at})`, absent: '0' },
  u16: { load: (at) => `view.getUint16(${at}, true)`, absent: '0' },
  u32: { load: (at) => `view.getUint32(${at}, true)`, absent: '0' },
  i64: { load: (at) => `view.getInt32(${at} + 4, true) * 4294967296 + view.getUint32(${at}, true)`, absent: '0' },
  f64: { load: (at) => `view.getFloat64(${at}, true)`, absent: '0' },
  flag: { load: (at) => `view.getUint8(${at}) !== 0`, absent: 'false' },
  hash: { load: (at) => `plain.slice(${at}, ${at} + 32)`, absent: 'new Uint8Array(32)' },
  text: { load: (at) => `bytes.utf8Slice(end, end += view.getUint16(${at}, true))`, absent: "''" },
}

type Kind = { readonly code: number; readonly fields: Readonly<Record<string, FieldType>> }

const wrongHash = (value: Uint8Array): never => {
  throw new Error(`journal: a hash has ${value.length} bytes, want 32`)
}

const compileEncoder = ({ code, fields }: Kind): { encode: Encode; bytes_max: number } => {
  let offset = PREFIX_BYTES
  let texts = 0
  const lines = Object.entries(fields).map(([name, type]) => {
    const at = `at + ${offset}`
    offset += widthOf(type)
    if (type === 'text') texts++
    if (typeof type === 'string') return STORES[type](`record.${name}`, at)
    return `view.setUint8(${at}, ${JSON.stringify(type)}.indexOf(record.${name}));`
  })
  const body = `const { bytes, view } = area; let n = 0; let end = at + ${offset};
    view.setUint16(at, ${code}, true); view.setUint16(at + 2, ${offset}, true);
    ${lines.join('\n')}
    return end - at`
  const made = new Function('wrongHash', `return (area, at, record) => { ${body} }`)(wrongHash) as Encode
  return { encode: made, bytes_max: offset + texts * limits.text_bytes_max }
}

const compileDecoder = (name: string, { fields }: Kind): Decode => {
  let offset = PREFIX_BYTES
  const checks: string[] = []
  const loads = Object.entries(fields).map(([field, type]) => {
    const at = `at + ${offset}`
    offset += widthOf(type)
    const known = `fixed >= ${offset}`
    if (typeof type !== 'string') {
      // A choice that this version does not know makes the record unknown: half a record must not pass as a whole one.
      checks.push(`if (${known} && view.getUint8(${at}) >= ${type.length}) return undefined;`)
      return `${field}: ${JSON.stringify(type)}[${known} ? view.getUint8(${at}) : 0],`
    }
    if (type === 'text') checks.push(`if (${known}) texts += view.getUint16(${at}, true);`)
    return `${field}: ${known} ? ${LOADS[type].load(at)} : ${LOADS[type].absent},`
  })
  const body = `const { bytes, plain, view } = area; const fixed = view.getUint16(at + 2, true); let texts = 0;
    if (fixed < ${PREFIX_BYTES} || fixed > length) return undefined;
    ${checks.join('\n')}
    if (fixed + texts > length) return undefined;
    let end = at + fixed;
    return { kind: ${JSON.stringify(name)}, ${loads.join('\n')} }`
  return new Function(`return (area, at, length) => { ${body} }`)() as Decode
}

const kinds = Object.entries(KINDS as Record<JournalRecord['kind'], Kind>)
for (const [name, { code }] of kinds) {
  const twice = kinds.some(([other, kind]) => other !== name && kind.code === code)
  if (code < 1 || code > code_max || twice) throw new Error(`journal: code ${code} of ${name} is out of range or taken`)
}
const encoders = Object.fromEntries(kinds.map(([name, kind]) => [name, compileEncoder(kind)]))
const decoders = new Map(kinds.map(([name, kind]) => [kind.code, compileDecoder(name, kind)]))
const encode_by_kind = Object.fromEntries(Object.entries(encoders).map(([name, { encode }]) => [name, encode]))

/** Most bytes that a record takes as a payload, whatever its texts. */
export const payload_bytes_max = Math.max(...Object.values(encoders).map(({ bytes_max }) => bytes_max))
if (payload_bytes_max > limits.record_bytes_max) throw new Error('journal: a record can exceed limits.record_bytes_max')

/**
 * Writes a record at `at`, returns the bytes it took. The area must have `payload_bytes_max` bytes from there. Texts
 * that are too long are cut, numbers out of range are stored as the nearest in range; a hash that is not 32 bytes is a
 * bug and throws.
 */
export const encodeRecord = (area: Area, at: number, record: JournalRecord): number =>
  encode_by_kind[record.kind]!(area, at, record)

/**
 * The record whose payload is the `length` bytes at `at`, with a copy of all it needs; undefined if this version does
 * not know its kind or one of its choices.
 */
export const decodeRecord = (area: Area, at: number, length: number): JournalRecord | undefined =>
  length < PREFIX_BYTES ? undefined : decoders.get(area.bytes[at]!)?.(area, at, length)
