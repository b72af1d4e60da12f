import { LEAF_BYTES_MAX, sha256 } from '../audit/hash.ts'
import { held, REVENUE, tenant } from './call-row.ts'
import type { Cells } from './columns.ts'
import { namesOf } from './inserter.ts'
import { jsonOf, leafOfText, putBytes, putHex, putPlain, putWhole, roomFor, written } from './leaf-bytes.ts'
import { type AttemptRow, type CallRow, calls, type EntryRow } from './tables.ts'

type Call = Cells<CallRow>
type Entry = Omit<Cells<EntryRow>, 'log_index'>

/** Members of a leaf in their order, that of RFC 8785: every column but the salt, and three more. */
const MEMBERS = [...namesOf(calls).filter((name) => name !== 'salt'), 'entries', 'salt_sha256', 'tried', 'type'].sort()

/**
 * The leaf of a call. Requires that `row` has its salt, its salted hashes and its `log_index`, and of its entries those of
 * this leaf, in the order of their numbers.
 *
 * Most calls of a key differ in figures, id and hashes alone, so the JSON between those is kept, and a leaf is put together
 * byte by byte: 1 µs, where a string of it takes 4. Whatever is out of the ordinary takes the slow way, to the same bytes.
 */
export const callLeaf = (row: Call, tried: readonly AttemptRow[], posted: readonly Entry[]): Uint8Array => {
  const form = tried.length === 0 ? formOf(row) : undefined
  if (form !== undefined) {
    const texts = row.end_user.length + row.engine.length + row.finish_reason.length + row.id.length
    const bytes_max = form.bytes_max + texts + posted.length * form.entry_bytes_max
    const { memory, at } = roomFor(Math.min(bytes_max, LEAF_BYTES_MAX))
    const end = bytes_max > LEAF_BYTES_MAX ? undefined : write(memory, at, form, row, posted)
    if (end !== undefined) return written(at, end)
  }
  return leafOfText(row.log_index, textOf(row, tried, posted))
}

const textOf = (row: Call, tried: readonly AttemptRow[], posted: readonly Entry[]): string => {
  const members: Record<string, string> = {
    entries: `[${posted.map(entryText).join(',')}]`,
    salt_sha256: row.salt === null ? '""' : jsonOf(sha256(row.salt)),
    tried: `[${tried.map(triedText).join(',')}]`,
    type: '"call"',
  }
  return `{${MEMBERS.map((name) => `"${name}":${members[name] ?? jsonOf(row[name as keyof Call])}`).join(',')}}`
}

const triedText = ({ at_ms, because, engine, engine_model, n }: AttemptRow): string =>
  `{"at_ms":${at_ms},"because":${jsonOf(because)},"engine":${jsonOf(engine)},"engine_model":${jsonOf(engine_model)},"n":${n}}`

const entryText = ({ amount_nanodollars, at_ms, credit, debit, id, kind, reason }: Entry): string =>
  `{"amount_nanodollars":${jsonOf(amount_nanodollars)},"at_ms":${at_ms},"credit":${jsonOf(credit)},"debit":${jsonOf(debit)},"id":${id},"kind":"${kind}","reason":${jsonOf(reason)}}`

/** What calls of a key have in common: the JSON before each member that they differ in, and after the last. */
type Form = {
  readonly of: Call
  readonly pieces: readonly Uint8Array[]
  readonly entries: readonly EntryForm[]
  readonly bytes_max: number
  readonly entry_bytes_max: number
}
/** An entry with its accounts, but for amount, time and number. */
type EntryForm = Pick<EntryRow, 'kind' | 'debit' | 'credit'> & { readonly middle: Uint8Array; readonly end: Uint8Array }

/** Members in which calls of a key differ, in the order of a leaf. */
const VARYING = {
  at_ms: 'figure',
  cached_tokens: 'figure',
  charge_nanodollars: 'figure',
  completion_tokens: 'figure',
  end_user: 'text',
  engine: 'text',
  engine_ms: 'figure',
  entries: 'entries',
  finish_reason: 'text',
  first_token_ms: 'figure',
  hold_nanodollars: 'figure',
  id: 'text',
  log_index: 'figure',
  prompt_tokens: 'figure',
  queue_ms: 'figure',
  reasoning_tokens: 'figure',
  request_sha256: 'bytes',
  response_sha256: 'bytes',
  salt_sha256: 'bytes',
  total_ms: 'figure',
} as const
const KINDS = Object.values(VARYING)
/** What stands around a member of a kind. */
const AROUND = { figure: ['', ''], text: ['"', '"'], bytes: ['"', '"'], entries: ['[', ']'] } as const
const isVarying = (name: string): name is keyof typeof VARYING => Object.hasOwn(VARYING, name)
const COMMON = MEMBERS.filter((name) => !isVarying(name) && name !== 'tried' && name !== 'type')
// Compiled, both, as they run for every call: the values of those members, and whether calls agree in the others.
const valuesOf = new Function(
  'row',
  'salt_sha256',
  'entries',
  `return [${Object.keys(VARYING).map((name) => (name === 'salt_sha256' || name === 'entries' ? name : `row.${name}`))}]`,
)
const hasForm = new Function('row', 'of', `return ${COMMON.map((name) => `row.${name} === of.${name}`).join(' && ')}`)

/** Digits of a figure, at most. */
const DIGITS_MAX = 16
const KEYS_MAX = 1_000
const FORMS_MAX = 8
/** By key: forms of its calls. */
const forms = new Map<string, Form[]>()
let misses = 0

const formOf = (row: Call): Form | undefined => {
  const of_key = forms.get(row.key_id) ?? []
  for (const form of of_key) if (hasForm(row, form.of)) return form
  if (of_key.length === 0) {
    if (forms.size >= KEYS_MAX) forms.clear()
    forms.set(row.key_id, of_key)
  }
  // A form costs more than a leaf without one: where calls of a key are of too many kinds, few are kept anew.
  misses += 1
  if (of_key.length === FORMS_MAX && misses % 32 !== 0) return undefined
  const made = newForm(row)
  if (of_key.length < FORMS_MAX) of_key.push(made)
  else of_key[(misses / 32) % FORMS_MAX] = made
  return made
}

const newForm = (row: Call): Form => {
  const pieces: string[] = []
  let text = '{'
  for (const name of MEMBERS) {
    text += `${text === '{' && pieces.length === 0 ? '' : ','}"${name}":`
    if (isVarying(name)) {
      const [before, after] = AROUND[VARYING[name]]
      pieces.push(text + before)
      text = after
    } else if (name === 'tried') text += '[]'
    else text += name === 'type' ? '"call"' : jsonOf(row[name as keyof Call])
  }
  pieces.push(`${text}}`)
  const [own, holding] = [tenant(row.tenant), held(row.tenant)]
  const entries = [
    entryForm('capture', own, REVENUE),
    entryForm('capture', holding, REVENUE),
    entryForm('release', holding, own),
  ]
  const bytes = pieces.map((piece) => Buffer.from(piece))
  return {
    of: row,
    pieces: bytes,
    entries,
    bytes_max: bytes.reduce((sum, piece) => sum + piece.byteLength + DIGITS_MAX, 3 * 64),
    entry_bytes_max:
      64 + 3 * DIGITS_MAX + Math.max(...entries.map(({ middle, end }) => middle.byteLength + end.byteLength)),
  }
}

const entryForm = (kind: EntryRow['kind'], debit: string, credit: string): EntryForm => ({
  kind,
  debit,
  credit,
  middle: Buffer.from(`,"credit":${jsonOf(credit)},"debit":${jsonOf(debit)},"id":`),
  end: Buffer.from(`,"kind":"${kind}","reason":""}`),
})

const AMOUNT = Buffer.from('{"amount_nanodollars":')
const AT_MS = Buffer.from(',"at_ms":')
const salt_sha256 = new Uint8Array(32)

/** Writes a leaf; answers its end, or undefined if there is a member that the form has no place for. */
const write = (
  into: Uint8Array,
  from: number,
  { pieces, entries }: Form,
  row: Call,
  posted: readonly Entry[],
): number | undefined => {
  if (row.salt === null) return undefined
  Bun.SHA256.hash(row.salt, salt_sha256)
  const values = valuesOf(row, salt_sha256, posted)
  let at = from
  for (let nth = 0; nth < KINDS.length; nth++) {
    at = putBytes(into, at, pieces[nth]!)
    const value = values[nth]
    const kind = KINDS[nth]!
    if (kind === 'figure') at = putFigure(into, at, value)
    else if (kind === 'text') at = putPlain(into, at, value)
    else if (kind === 'bytes') at = putHex(into, at, value)
    else at = putEntries(into, at, entries, value)
    if (at < 0) return undefined
  }
  return putBytes(into, at, pieces[KINDS.length]!)
}

/** Below 0 for what is no number or is not written as one. */
const putFigure = (into: Uint8Array, at: number, value: Amount | null): number => {
  const number = figure(value)
  return number < 0 ? -1 : putWhole(into, at, number)
}

/** Below 0 if one is not among the known. */
const putEntries = (into: Uint8Array, from: number, known: readonly EntryForm[], posted: readonly Entry[]): number => {
  let at = from
  for (let nth = 0; nth < posted.length; nth++) {
    const entry = posted[nth]!
    const { kind, debit, credit, reason, id } = entry
    const form = known.find((one) => one.kind === kind && one.debit === debit && one.credit === credit)
    const amount = figure(entry.amount_nanodollars)
    if (form === undefined || reason !== '' || amount < 0) return -1
    if (nth > 0) into[at++] = COMMA
    at = putWhole(into, putBytes(into, at, AMOUNT), amount)
    at = putWhole(into, putBytes(into, at, AT_MS), entry.at_ms)
    at = putWhole(into, putBytes(into, at, form.middle), id)
    at = putBytes(into, at, form.end)
  }
  return at
}

const COMMA = 44

type Amount = number | bigint | string

/** An amount as a number, below 0 if it is not written as one. */
const figure = (amount: Amount | null): number => {
  if (typeof amount === 'number') return amount
  return typeof amount === 'bigint' && amount >= 0n && amount <= SAFE_MAX ? Number(amount) : -1
}

const SAFE_MAX = BigInt(Number.MAX_SAFE_INTEGER)
