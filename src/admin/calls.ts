import { type Static, Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import {
  type CallFilter,
  callsPage,
  oneCall,
  ROLLED_UP,
  usage,
  USAGE_GROUPS,
  type UsageGroup,
} from '../ledger/queries.ts'
import { attemptOnWire, callOnWire, isoOf, moneyOnWire } from '../ledger/wire.ts'
import { fieldFault } from './input.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, PAGE_ROWS } from './route.ts'
import { timeField, timeOf } from './times.ts'

const closed = { additionalProperties: false } as const

const FILTER = {
  tenant: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'Only calls of this tenant.' })),
  model: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Only calls of this model.' })),
  from: Type.Optional(timeField('Only calls at or after this time.')),
  to: Type.Optional(timeField('Only calls before this time.')),
} as const

const CallsQuery = Type.Object({ ...FILTER, ...PAGE }, closed)

const UsageQuery = Type.Object(
  {
    ...FILTER,
    group_by: Type.Optional(
      Type.String({
        maxLength: 64,
        description: `Any of ${USAGE_GROUPS.join(', ')}, with commas between; one sum of all if absent.`,
      }),
    ),
  },
  closed,
)

const CALL_EXAMPLE = {
  id: 'call_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
  tenant: 'acme',
  end_user: 'jo',
  model: 'llama-3.1-8b',
  asked_model: 'llama-3.1-8b',
  engine: 'vllm-a',
  engine_model: 'meta-llama/Llama-3.1-8B-Instruct',
  endpoint: '/v1/chat/completions',
  stream: true,
  status: 200,
  finish_reason: 'stop',
  ending: 'whole',
  failure: '',
  prompt_tokens: 120,
  cached_tokens: 0,
  completion_tokens: 40,
  reasoning_tokens: 0,
  usage_source: 'engine',
  attempts: 1,
  hold_nanodollars: 90_000,
  charge_nanodollars: 48_000,
  price_version: 1,
  queue_ms: 0,
  engine_ms: 800,
  first_token_ms: 95,
  total_ms: 802,
  log_index: 41,
  at: '2026-01-31T09:30:00.000Z',
  key: 'key_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
  request_sha256: '5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef',
  response_sha256: '0be64ae89ddd24e225434de95d501711339baeee18f009ba9b4369af27d30d60',
}

/** The ledger: calls and their sums. */
export const CALL_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/calls',
    tag: 'ledger',
    summary: 'Calls, newest first',
    description: 'Calls that reached an engine, once they have ended and are posted.',
    query: CallsQuery,
    example: listOf(CALL_EXAMPLE),
    run: ({ query }, { ledger_reader }) => {
      const filter = filterOf(query)
      if (filter instanceof Failure) return filter
      const page = callsPage(ledger_reader, filter, query.limit ?? PAGE_ROWS, query.cursor)
      if (page instanceof Failure) return page
      return { json: { data: page.data.map(callOnWire), next_cursor: page.next_cursor } }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/calls/:id',
    tag: 'ledger',
    summary: 'One call, its engines and its entries',
    description: 'All engines it was sent to, if it was sent to more than one, and the transfers that paid for it.',
    example: { ...CALL_EXAMPLE, tried: [], entries: [] },
    failures: ['not_found'],
    run: ({ params }, { ledger_reader }) => {
      const id = params['id'] ?? ''
      const call = oneCall(ledger_reader, id)
      if (call === undefined)
        return new Failure('not_found', {
          says: `The ledger has no call ${quoted(id)}; a call is posted within about a second of its end; of one that was refused /admin/calls/{id}/explain may tell.`,
        })
      const entries = call.entries.map(({ at_ms, amount_nanodollars, call_id: _call, ...entry }) => ({
        ...entry,
        at: isoOf(at_ms),
        amount_nanodollars: moneyOnWire(amount_nanodollars),
      }))
      return { json: { ...callOnWire(call.row), tried: call.attempts.map(attemptOnWire), entries } }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/usage',
    tag: 'ledger',
    summary: 'Calls, tokens and charges, summed',
    description:
      'By whole days in UTC: each day that the period touches counts whole. Grouped by key or end_user it reads the calls themselves: from is needed then, and at most 92 days.',
    query: UsageQuery,
    example: listOf({
      tenant: 'acme',
      day: '2026-01-31',
      calls: 3,
      unpriced_calls: 0,
      prompt_tokens: 360,
      cached_tokens: 0,
      completion_tokens: 120,
      reasoning_tokens: 0,
      charge_nanodollars: 144_000,
    }),
    run: ({ query }, { ledger_reader, now }) => {
      const filter = filterOf(query)
      if (filter instanceof Failure) return filter
      const groups = groupsOf(query.group_by)
      if (groups instanceof Failure) return groups
      const long = tooLong(groups, filter, now())
      if (long) return long
      const rows = usage(ledger_reader, groups, filter)
      const data = rows.map((row) => ({ ...row, charge_nanodollars: moneyOnWire(row.charge_nanodollars) }))
      return { json: { data, next_cursor: null } }
    },
  }),
]

const filterOf = (query: Static<typeof CallsQuery> | Static<typeof UsageQuery>): CallFilter | Failure => {
  const from_ms = timeOf('from', query.from)
  if (from_ms instanceof Failure) return from_ms
  const to_ms = timeOf('to', query.to)
  if (to_ms instanceof Failure) return to_ms
  if (from_ms !== undefined && to_ms !== undefined && from_ms >= to_ms)
    return fieldFault('to', `${quoted(query.to ?? '')} is not after from`, `allowed: a time after ${query.from}`)
  return {
    ...(query.tenant !== undefined && { tenant: query.tenant }),
    ...(query.model !== undefined && { model: query.model }),
    ...(from_ms !== undefined && { from_ms }),
    ...(to_ms !== undefined && { to_ms }),
  }
}

const CALLS_SPAN_MAX_MS = 92 * 86_400_000

const tooLong = (
  groups: readonly UsageGroup[],
  { from_ms, to_ms }: CallFilter,
  now_ms: number,
): Failure | undefined => {
  if (groups.every((group) => ROLLED_UP.includes(group))) return undefined
  if (from_ms !== undefined && (to_ms ?? now_ms) - from_ms <= CALLS_SPAN_MAX_MS) return undefined
  const found = from_ms === undefined ? 'is missing' : 'is more than 92 days before the end'
  return fieldFault('from', found, `needed by key or end_user: a time, at most 92 days before to`)
}

const groupsOf = (text: string | undefined): UsageGroup[] | Failure => {
  const groups: UsageGroup[] = []
  for (const word of text === undefined ? [] : text.split(',')) {
    const group = USAGE_GROUPS.find((known) => known === word)
    if (group === undefined || groups.includes(group))
      return fieldFault(
        'group_by',
        `${quoted(word)} ${group === undefined ? 'cannot be grouped by' : 'stands twice'}`,
        `allowed: ${USAGE_GROUPS.join(', ')}, each once, with commas between`,
      )
    groups.push(group)
  }
  return groups
}
