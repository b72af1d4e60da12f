import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { Failure, type FailureCode } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { readBody, readQuery } from './input.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'

/** What a handler is told. Query and body have kept to their schemas. */
export type Asked<Query, Body> = {
  readonly operator: Operator
  /** The parts of the address behind a colon, decoded. */
  readonly params: Readonly<Record<string, string>>
  readonly query: Query
  readonly body: Body
}

/** What a handler answers: JSON, or a body of a type of its own; 200 unless it says otherwise. */
export type Answer =
  | { readonly status?: number; readonly json: unknown }
  | { readonly status?: number; readonly body: string | Uint8Array; readonly type: string }

/** An address of the admin API: everything that serving, documenting and testing it needs. */
export type AdminRoute = {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** In the router's form: `/admin/keys/:id`. */
  readonly path: string
  readonly tag: string
  readonly summary: string
  readonly description?: string
  readonly query?: TSchema
  readonly body?: TSchema
  readonly body_example?: unknown
  readonly status: number
  readonly example: unknown
  /** The type of the answer, if it is not JSON. */
  readonly answers?: string
  readonly failures: readonly FailureCode[]
  /** Reads the request and does what it asks. Needs the operator, so never runs for a stranger. */
  readonly serve: (
    operator: Operator,
    request: Request,
    params: Readonly<Record<string, string>>,
    house: OpsHouse,
  ) => Promise<Answer | Failure>
  /** The same for anyone, without an operator, where `audit.public` allows that; undefined if these parts are not for anyone. */
  readonly serveAnyone?: (
    request: Request,
    params: Readonly<Record<string, string>>,
    house: OpsHouse,
  ) => Promise<Answer | Failure> | undefined
}

type Spec<Query extends TSchema, Body extends TSchema> = Omit<
  AdminRoute,
  'serve' | 'query' | 'body' | 'status' | 'failures'
> & {
  readonly query?: Query
  readonly body?: Body
  readonly status?: number
  readonly failures?: readonly FailureCode[]
  readonly run: (
    asked: Asked<Static<Query>, Static<Body>>,
    house: OpsHouse,
  ) => Answer | Failure | Promise<Answer | Failure>
}

/** Failures that any address of the admin API can answer. */
export const COMMON_FAILURES: readonly FailureCode[] = ['key_missing', 'key_invalid', 'field_invalid', 'internal']

/** Makes a route: reads query and body under their schemas, then runs the handler. An address without a query takes none. */
export const adminRoute = <
  Query extends TSchema = ReturnType<typeof nothing>,
  Body extends TSchema = ReturnType<typeof nothing>,
>(
  spec: Spec<Query, Body>,
): AdminRoute => {
  const { run, failures = [], status = 200, ...rest } = spec
  return {
    ...rest,
    status,
    failures: [...COMMON_FAILURES, ...(spec.body ? BODY_FAILURES : []), ...failures],
    serve: async (operator, request, params, house) => {
      const query = readQuery(new URL(request.url), spec.query ?? nothing())
      if (query instanceof Failure) return query
      const body = spec.body === undefined ? {} : await readBody(request, spec.body)
      if (body instanceof Failure) return body
      return await run({ operator, params, query: query as Static<Query>, body: body as Static<Body> }, house)
    },
  }
}

/**
 * A route that reads and needs no operator, so that it can be opened to anyone; `may` says for which parts of its
 * address. It is given no operator in any case.
 */
export const openRoute = <Query extends TSchema = ReturnType<typeof nothing>>(
  spec: Omit<Spec<Query, ReturnType<typeof nothing>>, 'run' | 'body'> & {
    readonly run: (
      asked: Pick<Asked<Static<Query>, never>, 'params' | 'query'>,
      house: OpsHouse,
    ) => Answer | Failure | Promise<Answer | Failure>
  },
  may: (params: Readonly<Record<string, string>>) => boolean = () => true,
): AdminRoute => {
  const answer = async (request: Request, params: Readonly<Record<string, string>>, house: OpsHouse) => {
    const query = readQuery(new URL(request.url), spec.query ?? nothing())
    return query instanceof Failure ? query : await spec.run({ params, query: query as Static<Query> }, house)
  }
  return {
    ...adminRoute(spec),
    serveAnyone: (request, params, house) => (may(params) ? answer(request, params, house) : undefined),
  }
}

const BODY_FAILURES: readonly FailureCode[] = ['body_too_large', 'body_cut', 'json_invalid']

const nothing = () => Type.Object({}, { additionalProperties: false })

/** The fields of a query that turns pages. */
export const PAGE = {
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: limits.page_rows_max, description: 'Rows on the page; 100 if absent.' }),
  ),
  cursor: Type.Optional(
    Type.String({ minLength: 1, maxLength: 512, description: '`next_cursor` of the page before this.' }),
  ),
} as const

/** Rows of a page that does not say how many. */
export const PAGE_ROWS = 100

/** Cuts one page out of a list that is in memory anyway; the cursor is the name of the last row shown. */
export const pageOf = <Row>(
  rows: readonly Row[],
  nameOf: (row: Row) => string,
  query: { readonly limit?: number; readonly cursor?: string },
): { data: Row[]; next_cursor: string | null } => {
  const sorted = rows.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))
  const left = query.cursor === undefined ? sorted : sorted.filter((row) => nameOf(row) > query.cursor!)
  const data = left.slice(0, query.limit ?? PAGE_ROWS)
  return { data, next_cursor: left.length > data.length ? nameOf(data.at(-1)!) : null }
}

/** An example of a list. */
export const listOf = (...rows: unknown[]) => ({ data: rows, next_cursor: null })
