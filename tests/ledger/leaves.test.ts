import { expect, test } from 'bun:test'
import { canonicalJson, type Canonical } from '../../src/audit/canonical-json.ts'
import { LEAF_BYTES_MAX, sha256 } from '../../src/audit/hash.ts'
import { callLeaf } from '../../src/ledger/call-leaf.ts'
import { adminActionLeaf, entriesLeaf, priceLeaf, refusalLeaf } from '../../src/ledger/leaves.ts'
import type { RefusalRow } from '../../src/ledger/refusal-tables.ts'
import type { AdminActionRow, AttemptRow, CallRow, EntryRow, PriceRow } from '../../src/ledger/tables.ts'
import { callRow } from '../../src/ledger/call-row.ts'
import { forAll } from '../kit/wait.ts'
import { PRICE, PRICES, ending, intent } from './make.ts'

const ODD = ['', 'plain', 'with "quotes" \\ and\nlines', 'é漢😀\u2028', '\u0000\u001f\u007f']
const salt = new Uint8Array(16).fill(7)
const call = (changes: Partial<CallRow> = {}): CallRow => ({
  ...callRow(intent('call_a'), ending('call_a'), PRICES, 'w00-000001'),
  salt,
  log_index: 5,
  ...changes,
})
const tried: AttemptRow[] = [{ call_id: 'call_a', n: 1, engine: 'e1', engine_model: 'm', because: '', at_ms: 4 }]
const entry: EntryRow = {
  id: 3,
  call_id: null,
  at_ms: 9,
  kind: 'grant',
  debit: 'grants',
  credit: 'tenant:acme',
  amount_nanodollars: 5n,
  reason: 'a "gift"',
  log_index: 2,
}
const big: EntryRow = { ...entry, id: 4, reason: '', amount_nanodollars: 2n ** 60n }
const price: PriceRow = { model: 'm1', version: 2, valid_from_ms: 7, ...PRICE, log_index: 1 }
const refusal: RefusalRow = {
  id: 1,
  at_ms: 60_000,
  key_id: '',
  tenant: '',
  failure: 'key_invalid',
  count: 9,
  log_index: 0,
}
const action: AdminActionRow = {
  id: 1,
  at_ms: 5,
  actor: 'admin',
  action: 'keys.create',
  subject: 'key_1',
  detail_json: '{"tenant":"acme"}',
  log_index: 0,
}

const plain = (row: object): Record<string, Canonical> =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      typeof value === 'boolean'
        ? Number(value)
        : typeof value === 'bigint' && value <= 2n ** 53n - 1n
          ? Number(value)
          : value instanceof Uint8Array
            ? value.toHex()
            : value,
    ]),
  )
const callWant = (row: CallRow, of: readonly AttemptRow[], posted: readonly EntryRow[] = []) => {
  const { salt: _salt, ...rest } = plain(row)
  const engines = of.map(({ call_id: _call, ...attempt }) => plain(attempt))
  const entries = posted.map(({ call_id: _call, log_index: _index, ...transfer }) => plain(transfer))
  return { ...rest, type: 'call', salt_sha256: sha256(salt).toHex(), tried: engines, entries }
}
const text = (leaf: Uint8Array) => new TextDecoder().decode(leaf)
const withoutIndex = ({ log_index: _index, ...rest }: EntryRow) => plain(rest)

test.each([
  ...ODD.map((odd): [Uint8Array, object] => {
    const row = call({ end_user: odd, model: odd, finish_reason: odd })
    return [callLeaf(row, tried, []), callWant(row, tried)]
  }),
  [callLeaf(call(), [], [entry, big]), callWant(call(), [], [entry, big])],
  [callLeaf(call({ charge_nanodollars: null }), [], []), callWant(call({ charge_nanodollars: null }), [])],
  [callLeaf(call({ hold_nanodollars: 2n ** 60n }), [], []), callWant(call({ hold_nanodollars: 2n ** 60n }), [])],
  [
    entriesLeaf(2, [entry, { ...entry, call_id: 'c' }]),
    { type: 'entries', log_index: 2, entries: [withoutIndex(entry), withoutIndex({ ...entry, call_id: 'c' })] },
  ],
  [priceLeaf(price), { type: 'price', ...plain(price) }],
  [refusalLeaf(refusal), { type: 'refusal', ...plain(refusal) }],
  [adminActionLeaf(action), { type: 'admin_action', ...plain(action) }],
])('leaf %# is the canonical JSON of its row', (leaf, want) =>
  expect(text(leaf)).toBe(canonicalJson(want as Record<string, Canonical>)),
)

test('a lone surrogate enters as the replacement character, as SQLite stores it', () =>
  expect(text(callLeaf(call({ end_user: 'a\ud800' }), [], []))).toContain('"end_user":"a\ufffd"'))

test('a row too long for a leaf is there by its hash', () => {
  const row = call({ end_user: '\u0001'.repeat(20_000) })
  const leaf = callLeaf(row, [], [])
  const whole = new TextEncoder().encode(canonicalJson(callWant(row, [])))
  expect(whole.byteLength).toBeGreaterThan(LEAF_BYTES_MAX)
  expect(text(leaf)).toBe(`{"log_index":5,"sha256":"${sha256(whole).toHex()}","type":"too_long"}`)
})

test('calls of one key, in whatever they differ, have the leaves that canonical JSON makes', () => {
  const FIGURES = [0, 9, 10, 99_999, 2 ** 31, 999_999_999, 1e9, 1_000_000_007, 2 ** 32 + 5, 1e15, 2 ** 53 - 1]
  const posted = (owner: string, nth: number, amount: bigint): EntryRow =>
    (
      [
        { ...entry, kind: 'capture', debit: `tenant:${owner}`, credit: 'revenue', reason: '' },
        { ...entry, kind: 'capture', debit: `held:${owner}`, credit: 'revenue', reason: '' },
        { ...entry, kind: 'release', debit: `held:${owner}`, credit: `tenant:${owner}`, reason: '' },
        { ...entry, kind: 'refund', debit: 'revenue', credit: `tenant:${owner}`, reason: '' },
        { ...entry, kind: 'capture', debit: `tenant:${owner}`, credit: 'revenue', reason: 'why' },
      ] as const
    ).map((row) => ({ ...row, amount_nanodollars: amount, call_id: 'x' }))[nth]!
  forAll(500, (roll) => {
    const any = <T>(list: readonly T[]): T => list[roll(list.length)]!
    const figure = () => any(FIGURES)
    const owner = any(['acme', 'org "x"', 'é'])
    const row = call({
      id: any(['call_1', 'call_"2"', 'call_é']),
      key_id: any(['k1', 'k2']),
      end_user: any(['', 'jo', 'j\u0001']),
      engine: any(['e1', 'e"2']),
      finish_reason: any(['stop', 'lén']),
      tenant: owner,
      model: any(['m1', 'm\n2']),
      stream: roll(2) === 0,
      status: any([200, 499]),
      at_ms: figure(),
      prompt_tokens: figure(),
      queue_ms: figure(),
      total_ms: figure(),
      log_index: figure(),
      hold_nanodollars: any([0n, 7n, 2n ** 53n - 1n, 2n ** 53n]),
      charge_nanodollars: any([null, 0n, 12_345_678_901n, 2n ** 60n]),
      response_sha256: any([new Uint8Array(0), new Uint8Array(32).fill(171)]),
    })
    const entries = Array.from({ length: roll(4) }, () => posted(owner, roll(5), any([1n, 10n ** 12n, 2n ** 53n])))
    const engines = roll(5) === 0 ? tried : []
    expect(text(callLeaf(row, engines, entries))).toBe(canonicalJson(callWant(row, engines, entries)))
  })
})
