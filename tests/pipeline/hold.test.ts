import { afterAll, beforeAll, beforeEach, expect, setDefaultTimeout, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { catalogueOf, simCall, simHouse } from '../simulation/sim-house.ts'
import { renderFailure } from '../../src/http/render.ts'
import { parseBody } from '../../src/pipeline/body.ts'
import { type Endpoint, ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import { settleHold, takeHold } from '../../src/pipeline/hold.ts'
import { budgetUsed } from '../../src/table/budget-slot.ts'
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
  claimsOf(call).map(({ slot, window }) => budgetUsed(table, slot, window)!)
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
  expect(budgets.map(({ slot, window }) => budgetUsed(table, slot, window)!)).toEqual([5n, 5n, 5n, 5n])
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
  const limits = { tokens_per_minute: first.held!.tokens + 50 }
  const second = callOf(100, '')
  second.tenant = { ...second.tenant!, config: { ...second.tenant!.config, limits } }
  expect(take(second)).toMatchObject({
    code: 'rate_exceeded',
    detail: { says: `The limit of ${limits.tokens_per_minute} tokens a minute for this tenant is used up.` },
  })
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

/** A call with other members, under a limit of tokens a minute of its tenant. */
const asks = (members: object, tokens_per_minute: (prompt: number) => number, endpoint: Endpoint = ENDPOINTS.chat) => {
  const call = callOf(1, '')
  const text = JSON.stringify({ model: 'm0', messages: [{ role: 'user', content: 'hi' }], ...members })
  const limits = { tokens_per_minute: tokens_per_minute(Buffer.byteLength(text) + 256) }
  const body = parseBody(Buffer.from(text), true)
  if (body instanceof Failure) throw body
  Object.assign(call, {
    body,
    arrival: { endpoint },
    tenant: { ...call.tenant!, config: { ...call.tenant!.config, limits } },
  })
  return call
}

const NEVER = 'it never fits, however long it waits. '
test.each([
  {
    why: 'one answer',
    members: { max_tokens: 100 },
    room: 10,
    says: 'Set max_tokens to 10 at most.',
    param: 'max_tokens',
    fits: { max_tokens: 10 },
  },
  {
    why: 'several answers',
    members: { max_tokens: 100, n: 3 },
    room: 200,
    says: 'Set max_tokens to 66 at most, as each of its 3 answers may have so many.',
    param: 'max_tokens',
    fits: { max_tokens: 66 },
  },
  {
    why: 'answers that are made and not shown',
    members: { prompt: 'hi', max_completion_tokens: 100, n: 1, best_of: 4 },
    room: 100,
    says: 'Set max_completion_tokens to 25 at most, as each of its 4 answers may have so many.',
    param: 'max_completion_tokens',
    fits: { max_completion_tokens: 25 },
  },
  {
    why: 'both bounds, of which engines heed either',
    members: { max_tokens: 500, max_completion_tokens: 20 },
    room: 100,
    says: 'Set max_tokens to 100 at most.',
    param: 'max_tokens',
    fits: { max_tokens: 100 },
  },
  {
    why: 'a bound that bounds nothing, and hides the other',
    members: { max_tokens: 100, max_completion_tokens: -1 },
    room: 40,
    says: 'Set max_completion_tokens and max_tokens to 10 at most.',
    param: 'max_completion_tokens',
    fits: { max_tokens: 10, max_completion_tokens: 10 },
  },
  {
    why: 'a bound, beside one that bounds nothing and hides none',
    members: { max_tokens: 0, max_completion_tokens: 500 },
    room: 100,
    says: 'Set max_completion_tokens to 100 at most.',
    param: 'max_completion_tokens',
    fits: { max_completion_tokens: 100 },
  },
  {
    why: 'so many answers that none has a token',
    members: { max_tokens: 5, n: 100 },
    room: 40,
    says: 'Its 100 answers may have 40 tokens together: ask for fewer.',
    param: 'n',
    fits: { n: 8 },
  },
  {
    why: 'so many answers, and no bound',
    members: { n: 100 },
    room: 40,
    says: 'Its 100 answers may have 10 tokens together: ask for fewer.',
    param: 'n',
    fits: { n: 10 },
  },
  {
    why: 'so many prompts',
    members: { prompt: ['a', 'b', 'c', 'd'], max_tokens: 5 },
    room: 3,
    says: 'Its 4 answers may have 3 tokens together: ask for fewer.',
    param: 'prompt',
    fits: { prompt: ['a', 'b', 'c'], max_tokens: 1 },
    endpoint: ENDPOINTS.completions,
  },
  {
    why: 'the prompt alone',
    members: { max_tokens: 1 },
    room: -200,
    says: 'The prompt alone is too much: send less.',
    param: 'messages',
    fits: undefined,
  },
])('beyond a whole minute by $why: no Retry-After, and what it says to send is admitted', (one) => {
  const { members, room, says, param, fits, endpoint } = one
  let limit = 0
  const call = asks(members, (prompt) => (limit = prompt + room), endpoint)
  const refused = take(call)!
  expect([refused.code, refused.detail.param]).toEqual(['field_invalid', param])
  expect(refused.detail.says).toContain(`the limit of this tenant is ${limit} tokens a minute: ${NEVER}${says}`)
  expect(refused.detail.headers).toMatchObject({ 'x-ratelimit-limit-tokens': String(limit) })
  const response = renderFailure(refused)
  expect([response.status, response.headers.get('retry-after')]).toEqual([400, null])
  expect(tokensHeld()).toBe(0n)
  if (fits === undefined) return
  const shorter = { ...members, ...fits }
  expect(take(asks(shorter, () => limit, endpoint))).toBeUndefined()
})

test('of several token limits the smallest is told, and one of 0 is closed: that may change', () => {
  const call = asks({ max_tokens: 1_000 }, (prompt) => prompt + 500)
  call.key = { ...call.key!, tokens_per_minute: 700 }
  expect(take(call)!.detail.says).toContain('the limit of this key is 700 tokens a minute')
  call.key = { ...call.key!, tokens_per_minute: 0 }
  expect(take(call)).toMatchObject({ code: 'rate_exceeded', detail: { retry_after_s: 60 } })
})

test.each([
  [{ max_tokens: 5_000 }, /0\.02 USD a day, UTC: it never fits, .* Set max_tokens to \d+ at most\.$/, 'max_tokens'],
  [{ max_tokens: 5_000, n: 4 }, /Set max_tokens to \d+ at most, as each of its 4 answers may/, 'max_tokens'],
  [{}, /Set max_tokens to \d+ at most\.$/, 'max_tokens'],
  [{ max_tokens: 1, n: 10_000 }, /Its 10000 answers may have \d+ tokens together: ask for fewer\.$/, 'n'],
  [
    { max_tokens: 1, messages: [{ role: 'user', content: 'a'.repeat(12_000) }] },
    /The prompt alone is too much: send less\.$/,
    'messages',
  ],
])('beyond a whole budget, case %#: it is told what would fit', (members, says, param) => {
  const minute = () => 1_000_000
  const refused = take(asks({ user: 'u', ...members }, minute))!
  expect([refused.code, refused.detail.param]).toEqual(['field_invalid', param])
  expect(refused.detail.says).toMatch(says)
  expect(refused.detail.retry_after_s).toBeUndefined()
  expect(tokensHeld()).toBe(0n)
  if (param === 'messages') return
  const most = Number(/(\d+) (?:at most|tokens together)/.exec(refused.detail.says!)?.[1])
  // The bytes of a member that it did not have are of the prompt.
  const many = { user: 'u', ...members, [param]: most + 32 }
  expect(take(asks(many, minute))!.code).toBe('field_invalid')
  expect(take(asks({ ...many, [param]: most }, minute))).toBeUndefined()
})

test('beyond a whole budget by what each request costs: it is told that no other call fits either', () => {
  const call = callOf(1)
  const model = call.model!
  call.model = { ...model, prices: model.prices.map((price) => ({ ...price, request_nanodollars: 30_000_000 })) }
  const refused = take(call)!
  expect([refused.code, refused.detail.param]).toEqual(['field_invalid', 'model'])
  expect(refused.detail.says).toMatch(/No call of this model does: each costs 0\.03 USD beside its tokens\.$/)
  expect(tokensHeld()).toBe(0n)
})
