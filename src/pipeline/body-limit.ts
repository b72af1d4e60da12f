import { Failure } from '../base/failure.ts'

/** The one wording of a body over the limit, whichever way it was noticed. */
export const bodyTooLarge = (limit_bytes: number): Failure =>
  new Failure('body_too_large', {
    says: `The request body exceeds the limit of ${limit_bytes} bytes (server.body_bytes_max).`,
  })
