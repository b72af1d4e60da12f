import { afterAll, beforeAll, beforeEach, expect, setDefaultTimeout, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { LIMITS, catalogueOf, simCall, simHouse } from '../simulation/sim-house.ts'
import { settleHold, takeHold } from '../../src/pipeline/hold.ts'
import { readBudget } from '../../src/quota/budget-state.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { createTable, subjectOf, type Table } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** What one call holds, and that all of it goes back. The prices and limits are those of the simulation's house. */

const NOW_MS = Date.UTC(2026, 2, 28, 20, 30)
const FOREVER = { left: Number.POSITIVE_INFINITY }
const folder = tempFolder('weir-hold')
let table: Table
let made = 0
beforeAll(() => void (table = createTable(`${folder.path}/table`, 64, NOW_MS)))
afterAll(() => folder[Symbol.dispose]())

let clock_ms = NOW_MS
let house: ReturnType<typeof simHouse>
beforeEach(() => {
  // Each test a table of its own.
  table = createTable(`${folder.path}/table${made++}`, 64, NOW_MS)
  clock_ms = NOW_MS
  const now = () => clock_ms
  house = simHouse(
    table,
    0,
    catalogueOf(table, NOW_MS),
    {} as never,
    FOREVER,
    now,
    (record) => record,
    () => {},
  )
})

const callOf = (tokens_max: number, user = 'u') => simCall(`c${made++}`, house, clock_ms, 't0', user, tokens_max)
const claimsOf = ({ held }: ReturnType<typeof callOf>) => [
  ...held!.of_models.flatMap(({ budgets }) => budgets),
  ...held!.budgets,
]
const take = (call: ReturnType<typeof callOf>) => takeHold(call as never, house)
const used = (call: ReturnType<typeof callOf>) =>
  claimsOf(call).map(({ slot, window }) => readBudget(table, slot, window)!.used)
const tokensHeld = () => Atomics.load(table.i64, subjectOf(table, 'tenant', 't0')! + SUBJECT.amount)

test('tenant, model and end user hold alike; what is not used goes back, exactly once', () => {
  const call = callOf(1_000)
  expect(take(call)).toBeUndefined()
  const { nanodollars, tokens } = call.held!
  expect(nanodollars).toBe(BigInt(call.body.bytes.length + 256) * 2_000n + 1_000n * 9_000n + 10_000n)
  expect(used(call)).toEqual([nanodollars, nanodollars, nanodollars, nanodollars])
  expect(tokensHeld()).toBe(BigInt(tokens))
  const budgets = claimsOf(call)
  settleHold(call, house, 5n, 7)
  settleHold(call, house, 5n, 7)
  expect(budgets.map(({ slot, window }) => readBudget(table, slot, window)!.used)).toEqual([5n, 5n, 5n, 5n])
  expect(tokensHeld()).toBe(0n)
})

test('a budget that refuses leaves nothing held, neither money nor tokens, and says what is left and until when', () => {
  const first = callOf(1_500)
  expect(take(first)).toBeUndefined()
  const before = [used(first), tokensHeld()]
  const refused = take(callOf(1_500))
  expect(refused).toBeInstanceOf(Failure)
  expect(refused!.code).toBe('budget_exceeded')
  // The end user's budget is the tightest: 0.02 USD a day.
  expect(refused!.detail.says).toMatch(
    /^The budget of end user t0\/u \(0\.02 USD, a day, UTC\) has 0\.\d+ USD left, and this call may cost 0\.\d+ USD\. It begins anew at 2026-03-29T00:00:00\.000Z\.$/,
  )
  expect([used(first), tokensHeld()]).toEqual(before)
})

test('a token limit that refuses leaves no money held', () => {
  const first = callOf(100, '')
  take(first)
  const before = used(first)
  expect(take(callOf(LIMITS.tokens_per_minute, ''))!.code).toBe('rate_exceeded')
  expect(used(first)).toEqual(before)
})

test('a call whose window is long over when it comes to hold is held in the window that is open', () => {
  const early = callOf(100)
  clock_ms = Date.UTC(2026, 2, 29, 0, 0, 1)
  const later = callOf(100)
  take(later)
  clock_ms += 86_400_000
  const third = callOf(100)
  take(third)
  // Its window's slot is taken by the day after next. (Requests are limited by the time of arrival: not what is tested.)
  table.i64[subjectOf(table, 'model_limits', 'm0')! + SUBJECT.rate_tat_ns] = 0n
  expect(take(early)).toBeUndefined()
  expect(early.received_at_ms).toBe(clock_ms)
})

test('a call that sets no bound gets what a whole minute allows, so a small token limit locks nobody out', () => {
  const open = callOf(1, '')
  open.body = { ...open.body!, tokens_max: undefined, tokens_most: 0 }
  const prompt = open.body.bytes.length + 256
  open.tenant = { ...open.tenant!, config: { ...open.tenant!.config, limits: { tokens_per_minute: prompt + 700 } } }
  expect(take(open)).toBeUndefined()
  expect([open.held!.tokens, open.held!.ceiling_tokens]).toEqual([prompt + 700, 700])
  settleHold(open, house, 0n, 0)
})

test.each([
  {
    why: 'the answer',
    limit: (prompt: number) => prompt + 10,
    says: 'Waiting does not help: set a smaller max_tokens.',
  },
  {
    why: 'the prompt alone',
    limit: () => 20,
    says: /Waiting does not help: the prompt alone may be \d+ tokens, send less\.$/,
  },
])('beyond a whole minute by $why: the refusal says that waiting does not help', ({ limit, says }) => {
  const call = callOf(100, '')
  const tokens_per_minute = limit(call.body!.bytes.length + 256)
  call.tenant = { ...call.tenant!, config: { ...call.tenant!.config, limits: { tokens_per_minute } } }
  const refused = take(call)
  expect(refused!.code).toBe('rate_exceeded')
  expect(refused!.detail.says).toMatch(says)
})
