/** A new call id: `call_` and the 32 hex digits of a UUIDv7 (RFC 9562), so ids sort by the time they were made. */
export const newCallId = (): string => `call_${hexUuid()}`

/** A new id with a prefix of the caller's: `key_…`, `evt_…`. Sorts by time like {@link newCallId}. */
export const newId = (prefix: string): string => `${prefix}_${hexUuid()}`

/** A new secret API key: `weir_` and 256 random bits in base64url. Shown once, stored only as SHA-256. */
export const newSecret = (): string =>
  `weir_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url')}`

const hexUuid = (): string => Bun.randomUUIDv7().replaceAll('-', '')
