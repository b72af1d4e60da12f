import { errorBody, Failure, FAILURES, type FailureCode } from '../base/failure.ts'

/** The error answers of an operation in OpenAPI's form: one for each status, with each failure of it as an example. */
export const errorResponses = (codes: readonly FailureCode[]): Record<string, unknown> =>
  Object.fromEntries(
    [...Map.groupBy(codes, (code) => FAILURES[code].status)]
      .toSorted(([one], [other]) => one - other)
      .map(([status, members]) => [String(status), errorResponse(members)]),
  )

const errorResponse = (codes: readonly FailureCode[]) => ({
  description: codes.map((code) => `\`${code}\`: ${FAILURES[code].says}`).join('  \n'),
  ...(codes.some((code) => FAILURES[code].retry === 'after') && {
    headers: { 'Retry-After': { description: 'Whole seconds until a retry can work.', schema: { type: 'integer' } } },
  }),
  content: {
    'application/json': {
      schema: { $ref: '#/components/schemas/Error' },
      examples: Object.fromEntries(codes.map((code) => [code, { value: errorBody(new Failure(code)) }])),
    },
  },
})

/** The schema that {@link errorResponses} refers to: an error in OpenAI's shape. */
export const ERROR_SCHEMA = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string', description: 'What is wrong, where, and what would be right.' },
        type: { type: 'string', enum: [...new Set(Object.values(FAILURES).map((row) => row.type))] },
        param: { type: 'string', nullable: true, description: 'The field or header at fault.' },
        code: { type: 'string', enum: Object.keys(FAILURES) },
      },
    },
  },
} as const
