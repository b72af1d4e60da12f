import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { Elysia } from 'elysia'
import { FAILURES } from '../../src/base/failure.ts'
import { dataPlane } from '../../src/http/data-plane.ts'
import { clientDocs, clientDocument } from '../../src/http/client-api.ts'
import { DOCS_ASSETS, type OpenApi } from '../../src/http/swagger.ts'
import { type OpsTestHouse, openOpsHouse } from './ops-house.ts'

setDefaultTimeout(60_000)

let house: OpsTestHouse
let client: Elysia
beforeAll(() => {
  house = openOpsHouse()
  client = new Elysia().use(clientDocs()).listen({ hostname: '127.0.0.1', port: 0 }) as unknown as Elysia
})
afterAll(async () => {
  await house.close()
  await client.stop(true)
})

const planes = [
  ['ops plane', () => house.url],
  ['client API', () => `http://127.0.0.1:${client.server?.port}`],
] as const

describe.each(planes)('documentation of the %s', (_name, url) => {
  test('page and files come from this process, and the policy allows no other', async () => {
    const page = await fetch(`${url()}/docs`)
    const html = await page.text()
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(html).not.toMatch(/https?:|\/\/[a-z]/i)
    const loaded = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, address]) => address!)
    expect(loaded.toSorted()).toEqual(
      Object.keys(DOCS_ASSETS)
        .map((name) => `/docs/${name}`)
        .toSorted(),
    )
    const policy = page.headers.get('content-security-policy') ?? ''
    expect(policy).toStartWith("default-src 'none'; script-src 'self';")
    expect(policy).not.toMatch(/https?:|\*|script-src[^;]*unsafe/)
    for (const address of loaded) {
      const file = await fetch(`${url()}${address}`)
      expect([address, file.status, (await file.bytes()).length > 100]).toEqual([address, 200, true])
      expect(file.headers.get('x-content-type-options')).toBe('nosniff')
    }
    for (const own of ['docs.css', 'start.js'])
      expect(await (await fetch(`${url()}/docs/${own}`)).text()).not.toMatch(/https?:/)
  })

  test('no address of the application serves a page that loads from elsewhere', async () => {
    const { routes } = url() === house.url ? house.app : client
    for (const { method, path } of routes) {
      if (method !== 'GET') continue
      const answer = await fetch(`${url()}${path.replace(/:\w+/, 'x')}`)
      if (answer.headers.get('content-type')?.startsWith('text/html'))
        expect([path, (await answer.text()).match(/(?:src|href)="(?:https?:)?\/\/[^"]*"/)]).toEqual([path, null])
    }
  })

  test('every operation has a summary, an example and its error answers', async () => {
    const document = (await (await fetch(`${url()}/docs/json`)).json()) as OpenApi
    const tags = new Set((document['tags'] as { name: string }[]).map(({ name }) => name))
    expect(document.openapi).toStartWith('3.0.')
    const ids = new Set<unknown>()
    for (const [path, operations] of Object.entries(document.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        const where = `${method} ${path}`
        expect([where, operation.summary.length > 5]).toEqual([where, true])
        if (operation['operationId'] !== undefined)
          expect([where, ids.has(operation['operationId'])]).toEqual([where, false])
        ids.add(operation['operationId'])
        for (const tag of (operation['tags'] as string[] | undefined) ?? [])
          expect([where, tag, tags.has(tag)]).toEqual([where, tag, true])
        checkAnswers(where, operation['responses'] as Answers)
        const body = operation['requestBody'] as { content: Content } | undefined
        if (body)
          for (const { example } of Object.values(body.content))
            expect([where, example !== undefined]).toEqual([where, true])
        const named = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!)
        const parameters = (operation['parameters'] ?? []) as { in: string; name: string }[]
        expect(parameters.filter((one) => one.in === 'path').map((one) => one.name)).toEqual(named)
      }
    }
  })

  test('every reference has its target', async () => {
    const text = await (await fetch(`${url()}/docs/json`)).text()
    const document = JSON.parse(text) as { components: { schemas: object; securitySchemes: object } }
    for (const [, name] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g))
      expect(Object.keys(document.components.schemas)).toContain(name!)
    for (const [, name] of text.matchAll(/"security":\[\{"(\w+)"/g))
      expect(Object.keys(document.components.securitySchemes)).toContain(name!)
  })
})

type Content = Record<string, { example?: unknown; examples?: Record<string, { value: { error: { code: string } } }> }>
type Answers = Record<string, { description: string; content?: Content }>

const checkAnswers = (where: string, answers: Answers) => {
  const good = Object.keys(answers).filter((status) => status.startsWith('2'))
  // A second one is the 202 of a call that becomes a job, or of a job that is still being broken off.
  expect([where, good.filter((status) => status !== '202').length]).toEqual([where, 1])
  let errors = 0
  for (const [status, { description, content }] of Object.entries(answers)) {
    expect([where, status, description.length > 2]).toEqual([where, status, true])
    for (const { example, examples } of Object.values(content ?? {})) {
      expect([where, status, example !== undefined || examples !== undefined]).toEqual([where, status, true])
      for (const [code, { value }] of Object.entries(examples ?? {})) {
        errors++
        const row = FAILURES[code as keyof typeof FAILURES]
        expect(`${where} ${code} ${status}`).toBe(`${where} ${value.error.code} ${row.status}`)
      }
    }
  }
  expect([where, errors > 0]).toEqual([where, true])
}

test('the document of the ops plane has every address that it serves, and no other', async () => {
  const document = (await (await fetch(`${house.url}/docs/json`)).json()) as OpenApi
  const served = house.app.routes
    .filter(({ path }) => !path.startsWith('/docs'))
    .map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`)
  expect(addresses(document)).toEqual(served.toSorted())
})

test('every admin operation needs the token, and no public one does', async () => {
  const document = (await (await fetch(`${house.url}/docs/json`)).json()) as OpenApi
  for (const [path, operations] of Object.entries(document.paths))
    for (const operation of Object.values(operations))
      expect([path, operation['security'] !== undefined]).toEqual([path, /^\/(admin|audit)\//.test(path)])
})

const addresses = ({ paths }: OpenApi) =>
  Object.entries(paths)
    .flatMap(([path, operations]) => Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`))
    .toSorted()

test('the document of the client API has every address of the data plane, and no other', () => {
  // Only the list of its addresses is looked at: nothing is asked, so no house is needed.
  const served = dataPlane(undefined as never, undefined as never)
    .routes.filter(({ path }) => !path.startsWith('/docs'))
    .map(
      ({ method, path }) =>
        `${method} ${path.replace(/^\/v1\/models\/:a.*$/, '/v1/models/{model}').replace(':id', '{id}')}`,
    )
  expect(served.length).toBeGreaterThan(5)
  expect(addresses(clientDocument())).toEqual([...new Set(served)].toSorted())
})
