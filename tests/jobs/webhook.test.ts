import { describe, expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { signatureOf, Webhooks } from '../../src/jobs/webhook.ts'
import { isPrivate, urlFault, webhookOf } from '../../src/jobs/webhook-url.ts'

const PRIVATE = [
  ...['0.0.0.0', '10.1.2.3', '100.64.0.1', '127.0.0.1', '127.255.255.255', '169.254.169.254', '172.16.0.1'],
  ...['172.31.255.255', '192.168.1.1', '198.18.0.1', '224.0.0.1', '255.255.255.255'],
  ...['::', '::1', '::ffff:127.0.0.1', '::ffff:8.8.8.8', '64:ff9b::a00:1', 'fc00::1', 'fd12::1', 'fe80::1', 'ff02::1'],
  ...['2001:db8::1', '2002:a00:1::', '2001::1'],
]
const PUBLIC = [
  '1.1.1.1',
  '8.8.8.8',
  '172.32.0.1',
  '172.15.0.1',
  '100.63.0.1',
  '169.253.0.1',
  '2606:4700::1111',
  '2a00::1',
]

test('addresses that are none of the public Internet', () => {
  expect(PRIVATE.filter((ip) => !isPrivate(ip))).toEqual([])
  expect(PUBLIC.filter(isPrivate)).toEqual([])
})

describe('an address of a webhook', () => {
  // The parser of addresses knows the many spellings of one number.
  const refused = [
    ...[
      'ftp://example.com/',
      'example.com',
      'https://a.example/, https://b.example/',
      '',
      'http://',
      'http://user:pw@example.com/',
      'http://127.0.0.1/',
    ],
    ...['http://2130706433/', 'http://0x7f.1/', 'http://017700000001/', 'http://[::1]/', 'http://[::ffff:10.0.0.1]/'],
    ...['http://169.254.169.254/latest', `https://example.com/${'x'.repeat(3_000)}`],
  ]
  test.each(refused)('%s is refused', (url) => expect(urlFault(url, false)).toBeString())
  test.each(['https://example.com/hook?a=1', 'http://1.1.1.1:8080/'])('%s is taken', (url) =>
    expect(urlFault(url, false)).toBeUndefined(),
  )
  test('a private one is taken where the house allows it', () => {
    expect(urlFault('http://127.0.0.1/', true)).toBeUndefined()
  })
})

test('whose word counts: the call’s, then the tenant’s; without a secret there is none', () => {
  const config = { secret: 's'.repeat(16), url: 'https://t.example/' }
  const asked = new Headers({ 'x-weir-webhook': 'https://c.example/' })
  expect(webhookOf(asked, config, false)).toBe('https://c.example/')
  expect(webhookOf(new Headers(), config, false)).toBe('https://t.example/')
  expect(webhookOf(new Headers(), undefined, false)).toBeUndefined()
  expect((webhookOf(asked, undefined, false) as Failure).code).toBe('header_invalid')
})

type Delivered = { signature: string | null; body: string }

/** Tells one job to a server that answers these statuses, one after the other; how it ended, and what arrived. */
const told = async (statuses: readonly number[], allow_private = true) => {
  const arrived: Delivered[] = []
  using server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      arrived.push({ signature: request.headers.get('x-weir-signature'), body: await request.text() })
      const status = statuses[arrived.length - 1] ?? 500
      return new Response('', { status, ...(status === 302 && { headers: { location: '/elsewhere' } }) })
    },
  })
  const failed: unknown[] = []
  const webhooks = new Webhooks({
    allow_private: () => allow_private,
    now: () => 5_000,
    pauses_ms: [1, 1],
    log: (_event, { because }) => void failed.push(because),
  })
  const delivered = await new Promise<boolean>((over) =>
    webhooks.tell({
      ...{ job_id: 'job_1', url: `http://localhost:${server.port}/hook`, secret: 'secret' },
      body: () => Buffer.from('{"id":"job_1"}'),
      over,
    }),
  )
  return { delivered, arrived, failed }
}

test('is signed over its time and its body', async () => {
  const { delivered, arrived } = await told([200])
  expect([delivered, arrived]).toEqual([
    true,
    [{ signature: signatureOf('secret', 5, Buffer.from('{"id":"job_1"}')), body: '{"id":"job_1"}' }],
  ])
  expect(signatureOf('secret', 5, Buffer.from('x'))).toBe(
    `t=5,v1=${new Bun.CryptoHasher('sha256', 'secret').update('5.x').digest('hex')}`,
  )
})

test.each([
  [[503, 200], true, 2, ['status 503']],
  [[302, 204], true, 2, ['status 302']],
  [[500, 500, 500, 200], false, 3, ['status 500', 'status 500', 'status 500']],
] as const)('%j: delivered %p after %d tries', async (statuses, delivered, tries, because) => {
  const ended = await told(statuses)
  expect([ended.delivered, ended.arrived.length, ended.failed]).toEqual([delivered, tries, [...because]])
})

test('a name that leads to a private address is found out when it is asked', async () => {
  const ended = await told([200], false)
  expect([ended.delivered, ended.arrived]).toEqual([false, []])
  expect(ended.failed[0]).toBe('localhost is a private address')
})
