import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { ADMIN_ROUTES } from '../../src/admin/routes.ts'
import { connectRaw } from './raw.ts'
import { ADMIN_TOKEN, type OpsTestHouse, openOpsHouse } from './ops-house.ts'

setDefaultTimeout(60_000)

let house: OpsTestHouse
beforeAll(() => void (house = openOpsHouse()))
afterAll(() => house.close())

/** All that may be asked for without a token. A new public address has to be added here, on purpose. */
const PUBLIC =
  '/ /verify /live /ready /metrics /docs /docs/json /docs/swagger-ui.css /docs/swagger-ui-bundle.js /docs/favicon-32x32.png /docs/docs.css /docs/start.js'.split(
    ' ',
  )

const filled = (path: string) => path.replace(/:\w+/g, 'x')

const WRONG: readonly (readonly [why: string, headers: Record<string, string>])[] = [
  ['no token', {}],
  ['a wrong token', { authorization: 'Bearer wrong' }],
  ['an empty token', { authorization: 'Bearer ' }],
  ['a prefix of the token', { authorization: `Bearer ${ADMIN_TOKEN.slice(0, -1)}` }],
  ['the token and more', { authorization: `Bearer ${ADMIN_TOKEN}x` }],
  ['the token twice', { authorization: `Bearer ${ADMIN_TOKEN}, Bearer ${ADMIN_TOKEN}` }],
  ['another scheme', { authorization: `Basic ${btoa(`admin:${ADMIN_TOKEN}`)}` }],
  ['the bare token', { authorization: ADMIN_TOKEN }],
  ['another header', { 'x-api-key': ADMIN_TOKEN }],
  ['the hash of the token', { authorization: `Bearer ${Bun.SHA256.hash(ADMIN_TOKEN, 'hex')}` }],
]

test('every address that the application serves is public on purpose or an admin address', () => {
  const served = house.app.routes.map(({ method, path }) => `${method} ${path}`).toSorted()
  const known = [
    ...PUBLIC.map((path) => `GET ${path}`),
    ...ADMIN_ROUTES.map(({ method, path }) => `${method} ${path}`),
  ].toSorted()
  expect(served).toEqual(known)
  for (const { path } of ADMIN_ROUTES) expect(path).toMatch(/^\/(admin|audit)\//)
})

describe.each(WRONG)('with %s', (_why, headers) => {
  test('every address of the application that is not public answers 401 and nothing else', async () => {
    const { app, url } = house
    let asked = 0
    for (const { method, path } of app.routes) {
      if (PUBLIC.includes(path)) continue
      for (const spelling of [filled(path), `${filled(path)}/`, `${filled(path)}?limit=0&x=1`]) {
        const response = await fetch(`${url}${spelling}`, {
          method,
          headers,
          ...(method === 'POST' && { body: '{"tenant":' }),
        })
        const { error } = (await response.json()) as { error: { code: string; type: string } }
        expect([method, spelling, response.status, error.type]).toEqual([method, spelling, 401, 'authentication_error'])
        expect(response.headers.get('www-authenticate')).toBe('Bearer')
        asked++
      }
    }
    expect(asked).toBe(ADMIN_ROUTES.length * 3)
  })
})

test.each([
  'GET /admin/keys HTTP/1.1\r\nHost: x/live?\r\n\r\n',
  'GET /admin/keys HTTP/1.1\r\nHost: a@b\r\n\r\n',
  'GET /live/../admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET /live/%2e%2e/admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET http://localhost/admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'HEAD /admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET //admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET /ADMIN/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET /%61dmin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'GET /admin%2fkeys HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'PUT /admin/keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n',
  'OPTIONS /admin/keys HTTP/1.1\r\nHost: localhost\r\n\r\n',
])('%p does not get past the door', async (head) => {
  await house.ask('POST', '/admin/keys', { tenant: 'acme' })
  const answer = await connectRaw(house.url, head.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))
  expect(answer).toMatch(/^HTTP\/1\.1 (400|401|404|405) /)
  expect(answer).not.toContain('key_0')
})

test('audit.public opens what anyone may see of the log, and nothing that shows a row', async () => {
  const open = openOpsHouse('audit: { public: true }\n')
  try {
    const reached: string[] = []
    for (const { method, path } of ADMIN_ROUTES) {
      const response = await fetch(`${open.url}${filled(path)}`, { method, ...(method === 'POST' && { body: '{}' }) })
      if (response.status !== 401) reached.push(`${method} ${path}`)
    }
    expect(reached.toSorted()).toEqual([
      'GET /audit/checkpoint',
      'GET /audit/consistency',
      'GET /audit/inclusion',
      'GET /audit/public-key',
      'GET /audit/tile/:level/:one',
      'GET /audit/tile/:level/:one/:two',
      'GET /audit/tile/:level/:one/:two/:three',
      'GET /audit/tile/:level/:one/:two/:three/:four',
    ])
    for (const path of ['/audit/tile/entries/000', '/audit/entries/0', '/audit/tile/%65ntries/000'])
      expect([path, (await fetch(`${open.url}${path}`)).status]).toEqual([path, 401])
  } finally {
    open.close()
  }
})

test('the token opens every admin address', async () => {
  for (const { method, path } of ADMIN_ROUTES) {
    const { status } = await house.ask(method, filled(path), method === 'POST' ? {} : undefined)
    expect([path, [200, 400, 404, 503].includes(status)]).toEqual([path, true])
  }
  for (const scheme of ['bearer', 'BEARER'])
    expect(
      (await house.ask('GET', '/admin/log', undefined, { authorization: `${scheme} ${ADMIN_TOKEN}` })).status,
    ).toBe(200)
})

test('an unknown address is 404, another method 405 with Allow, both in the error shape', async () => {
  expect((await house.ask('GET', '/nope')).json.error.code).toBe('address_unknown')
  const wrong = await house.ask('PUT', '/admin/keys/x')
  expect([wrong.status, wrong.json.error.code, wrong.headers.get('allow')]).toEqual([
    405,
    'method_not_allowed',
    'DELETE',
  ])
  expect((await house.ask('POST', '/live')).headers.get('allow')).toBe('GET, HEAD')
})
