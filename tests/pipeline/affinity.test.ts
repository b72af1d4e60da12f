import { expect, test } from 'bun:test'
import type { StrategyName } from '../../src/balance/strategies.ts'
import { Failure } from '../../src/base/failure.ts'
import { affinityKey } from '../../src/pipeline/affinity.ts'
import { parseBody } from '../../src/pipeline/body.ts'
import type { Enriched } from '../../src/pipeline/call.ts'
import { type Endpoint, ENDPOINTS } from '../../src/pipeline/endpoints.ts'

type Made = {
  readonly strategy?: StrategyName
  readonly endpoint?: Endpoint
  readonly tenant?: string
  readonly session?: string
  readonly user?: string
  readonly body?: object
}

const chat = (...contents: readonly string[]) => ({
  messages: [
    { role: 'system', content: 'Be brief.' },
    ...contents.map((content, nth) => ({ role: nth % 2 === 0 ? 'user' : 'assistant', content })),
  ],
})

const keyOf = ({
  strategy = 'prefix_affinity',
  endpoint = ENDPOINTS.chat,
  tenant = 't',
  session,
  user,
  body,
}: Made) => {
  const bytes = Buffer.from(JSON.stringify({ model: 'm', ...(user && { user }), ...(body ?? chat('hi')) }))
  const parsed = parseBody(bytes, true)
  if (parsed instanceof Failure) throw new Error(JSON.stringify(parsed))
  const headers = new Headers(session === undefined ? {} : { 'x-weir-session': session })
  return affinityKey(
    { body: parsed, headers, tenant: { name: tenant }, arrival: { endpoint } } as unknown as Enriched,
    strategy,
  )
}

const long = 'x'.repeat(40_000)

test.each<[name: string, same: boolean, one: Made, other: Made]>([
  ['turns of one conversation', true, { body: chat('a') }, { body: chat('a', 'b', 'c') }],
  ['conversations that share a system prompt', false, { body: chat('a') }, { body: chat('b') }],
  ['prefix: tenants', true, { tenant: 'a' }, { tenant: 'b' }],
  ['models', false, { body: { ...chat('a'), model: 'other' } }, { body: chat('a') }],
  ['other parameters', true, { body: { ...chat('a'), temperature: 1 } }, { body: { temperature: 0, ...chat('a') } }],
  ['space between messages', true, { body: chat('a') }, { body: chat('a', 'b') }],
  [
    'plain prompts',
    false,
    { endpoint: ENDPOINTS.completions, body: { prompt: 'a' } },
    { endpoint: ENDPOINTS.completions, body: { prompt: 'b' } },
  ],
  [
    'plain prompts with one long start',
    true,
    { endpoint: ENDPOINTS.completions, body: { prompt: `${long}a` } },
    { endpoint: ENDPOINTS.completions, body: { prompt: `${long}b` } },
  ],
  [
    'tenant affinity: one tenant',
    true,
    { strategy: 'tenant_affinity', body: chat('a') },
    { strategy: 'tenant_affinity', body: chat('b') },
  ],
  [
    'tenant affinity: tenants',
    false,
    { strategy: 'tenant_affinity' },
    { strategy: 'tenant_affinity', tenant: 'other' },
  ],
  [
    'one session',
    true,
    { strategy: 'session_affinity', session: 's', body: chat('a') },
    { strategy: 'session_affinity', session: 's', body: chat('b') },
  ],
  ['sessions', false, { strategy: 'session_affinity', session: 's' }, { strategy: 'session_affinity', session: 'r' }],
  [
    'one session name of two tenants',
    false,
    { strategy: 'session_affinity', session: 's' },
    { strategy: 'session_affinity', session: 's', tenant: 'u' },
  ],
  ['end users', false, { strategy: 'session_affinity', user: 'a' }, { strategy: 'session_affinity', user: 'b' }],
  [
    'neither session nor end user',
    true,
    { strategy: 'session_affinity', body: chat('a') },
    { body: chat('a', 'b', 'c') },
  ],
])('%s: the same key %p', (_name, same, one, other) => {
  expect(keyOf(one) === keyOf(other)).toBe(same)
  expect(keyOf(one)).toBeGreaterThan(0)
})

test.each(['least_loaded', 'weighted', 'lowest_latency', 'cheapest'] as const)('%s goes by no key', (strategy) => {
  expect(keyOf({ strategy })).toBe(0)
})

test.each([
  ['no message', { messages: [] }],
  ['no user', { messages: [{ role: 'system', content: 'x' }] }],
  ['parts', { messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }] }],
  ['what is no message', { messages: [1, 'x', null] }],
])('%s has a key all the same', (_name, body) => {
  expect(keyOf({ body })).toBeGreaterThan(0)
})
