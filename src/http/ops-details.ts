import type { TSchema } from '@sinclair/typebox'
import type { AdminRoute } from '../admin/route.ts'
import { shapeOf } from '../config/shape.ts'
import { ERROR_SCHEMA, errorResponses } from './api-errors.ts'

/** The details of the ops plane's addresses in OpenAPI's form, for the plugin that prints the document. */

const answered = (description: string, type: string, example: unknown, schema: object = { type: 'object' }) => ({
  description,
  content: { [type]: { schema, example } },
})

const text = { type: 'string' }

/** The addresses that need no token. */
export const PUBLIC_DETAILS = {
  '/': {
    summary: 'Dashboard',
    tags: ['machine'],
    responses: { 200: answered('The page.', 'text/html', '<!doctype html>…', text), ...errorResponses(['internal']) },
  },
  '/verify': {
    summary: 'Page that checks a proof, offline; save it',
    description: 'It holds all it needs and may load nothing: a proof is checked in the browser alone.',
    tags: ['audit'],
    responses: { 200: answered('The page.', 'text/html', '<!doctype html>…', text), ...errorResponses(['internal']) },
  },
  '/live': {
    summary: 'The control process is up',
    tags: ['machine'],
    responses: {
      200: answered('It is.', 'application/json', { status: 'live' }),
      ...errorResponses(['internal']),
    },
  },
  '/ready': {
    summary: 'The house can take calls',
    tags: ['machine'],
    responses: {
      200: answered('It can.', 'application/json', { status: 'ready', generation: 1 }),
      503: answered('It cannot, and why.', 'application/json', {
        status: 'not ready',
        missing: ['no worker is live'],
      }),
      ...errorResponses(['internal']),
    },
  },
  '/metrics': {
    summary: 'Metrics of the whole machine for Prometheus',
    tags: ['machine'],
    responses: {
      200: answered(
        'Text exposition format 0.0.4.',
        'text/plain',
        '# HELP weir_requests_total Calls that arrived.\n# TYPE weir_requests_total counter\nweir_requests_total 42\n',
        text,
      ),
      ...errorResponses(['internal']),
    },
  },
} satisfies Record<string, object>

/** The details of an admin address. */
export const describe = (route: AdminRoute) => ({
  summary: route.summary,
  ...(route.description !== undefined && { description: route.description }),
  tags: [route.tag],
  security: [{ admin: [] }],
  parameters: [...pathParameters(route.path), ...queryParameters(route.query)],
  ...(route.body && {
    requestBody: {
      required: true,
      content: { 'application/json': { schema: plain(route.body), example: route.body_example } },
    },
  }),
  responses: {
    [route.status]: answered(
      'Done.',
      route.answers ?? 'application/json',
      route.example,
      route.answers === undefined ? undefined : text,
    ),
    ...errorResponses(route.failures),
  },
})

const pathParameters = (path: string) =>
  path
    .split('/')
    .filter((step) => step.startsWith(':'))
    .map((step) => ({ in: 'path' as const, name: step.slice(1), required: true, schema: { type: 'string' as const } }))

const queryParameters = (query: TSchema | undefined) =>
  Object.entries(query === undefined ? {} : (shapeOf(query).properties ?? {})).map(([name, field]) => {
    const { description = '', ...schema } = field
    return { in: 'query' as const, name, required: false, description, schema: plain(schema) }
  })

/** A schema as plain data: TypeBox's symbols and what OpenAPI does not know fall away. */
const plain = (schema: object) => JSON.parse(JSON.stringify(schema)) as object

/** The head of the document. */
export const opsDocumentation = () => ({
  info: {
    title: 'Weir: ops plane',
    version: '1',
    description:
      'Keys, tenants, the ledger and the state of the machine. Everything under `/admin` and `/audit` needs the admin token. Times are ISO 8601 in UTC, `…_usd` is USD as a decimal in text, `…_nanodollars` whole nanodollars (1e-9 USD). Any address not listed answers 404 `address_unknown`, another method 405 `method_not_allowed`.',
  },
  tags: [
    { name: 'machine', description: 'Workers, engines, models.' },
    { name: 'keys', description: 'Who may call.' },
    { name: 'ledger', description: 'What was called and what it cost.' },
    { name: 'finance', description: 'Budgets, invoices, and money that people move.' },
    { name: 'audit', description: 'The Merkle log of the ledger, and proofs out of it.' },
    { name: 'settings', description: 'The configuration and what was done to the house.' },
  ],
  components: {
    securitySchemes: { admin: { type: 'http' as const, scheme: 'bearer', description: 'The admin token.' } },
    schemas: { Error: plain(ERROR_SCHEMA) },
  },
})
