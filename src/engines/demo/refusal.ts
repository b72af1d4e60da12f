/** An error answer in the shape of vLLM: `{"error":{"message","type","param","code"}}`, where `code` is the status. */
export class Refusal {
  readonly status: number
  readonly message: string
  readonly param: string | null
  constructor(status: number, message: string, param: string | null = null) {
    this.status = status
    this.message = message
    this.param = param
  }

  response(): Response {
    const { status, message, param } = this
    const headers = status === 429 || status === 503 ? { 'retry-after': '1' } : {}
    return Response.json({ error: { message, type: typeOf(status), param, code: status } }, { status, headers })
  }
}

const TYPES: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  401: 'AuthenticationError',
  403: 'PermissionDeniedError',
  404: 'NotFoundError',
  422: 'UnprocessableEntityError',
  429: 'RateLimitError',
  501: 'NotImplementedError',
  503: 'ServiceUnavailableError',
}

const typeOf = (status: number): string => TYPES[status] ?? (status < 500 ? 'BadRequestError' : 'InternalServerError')
