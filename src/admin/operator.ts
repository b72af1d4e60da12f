import { timingSafeEqual } from 'node:crypto'
import { Failure } from '../base/failure.ts'

declare const authenticated: unique symbol

/** Who may change the house. Only {@link authenticate} makes one, so a handler that asks for it cannot run without. */
export type Operator = { readonly name: string; readonly [authenticated]: true }

/**
 * The operator of a request: `Authorization: Bearer` with the admin token, whose SHA-256 is `token_sha256` (hex). Hashes
 * are compared in constant time, so neither the token nor its length can be found by measuring.
 */
export const authenticate = (headers: Headers, token_sha256: string): Operator | Failure => {
  const authorization = headers.get('authorization')
  if (authorization === null)
    return new Failure('key_missing', {
      says: 'No admin token was given; needed: the header "Authorization: Bearer TOKEN".',
      param: 'authorization',
    })
  const found = /^bearer +([\x21-\x7e]+) *$/i.exec(authorization)?.[1]
  if (found === undefined)
    return new Failure('key_invalid', {
      says: 'The Authorization header must be "Bearer" and the admin token.',
      param: 'authorization',
    })
  const given = Buffer.from(Bun.SHA256.hash(found).buffer)
  const wanted = Buffer.from(token_sha256, 'hex')
  if (wanted.length !== given.length) throw new Error('the hash of the admin token must be 64 hex digits')
  if (!timingSafeEqual(given, wanted))
    return new Failure('key_invalid', { says: 'The admin token is not valid.', param: 'authorization' })
  return { name: 'admin' } as Operator
}
