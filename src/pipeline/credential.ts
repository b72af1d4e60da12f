import { Failure } from '../base/failure.ts'

/** The one credential of a request: three spellings, scheme in any case, empty ones none; two different ones are refused. */
export const credential = (headers: Headers): string | Failure => {
  const authorization = headers.get('authorization')
  let found: string | undefined
  if (authorization !== null) {
    if (authorization.length < 8 || authorization.slice(0, 7).toLowerCase() !== 'bearer ')
      return new Failure('key_invalid', { says: 'The Authorization header must be "Bearer" and an API key.' })
    found = authorization.slice(7).trim()
  }
  for (const name of BARE) {
    const value = headers.get(name)?.trim()
    if (value === undefined || value === '') continue
    if (found !== undefined && found !== value) return new Failure('keys_differ')
    found = value
  }
  return found ?? new Failure('key_missing')
}

/** Headers that hold a key and nothing else. */
const BARE = ['x-api-key', 'api-key'] as const
