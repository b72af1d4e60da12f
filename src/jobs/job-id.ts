/** Where a job's record is. */
export type JobPlace = {
  /** Who began the segment, and its number: the file is `w3-17-0.jobs`. */
  readonly segment: string
  readonly offset: number
  /** 32 hex digits that nobody can guess: {@link sealOf} of the rest. */
  readonly random: string
}

const HEX_32 = /^[0-9a-f]{32}$/
const ID = /^job_([0-9a-f]{32})([0-9a-f]{2})([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{8})$/
const SEGMENT = /^w(\d{1,3})-(\d{1,10})-(\d{1,5})$/

/**
 * The part of an id that proves that the gateway gave it out: HMAC-SHA256 of the place under the house's secret, 128 bits.
 * Without it a client could name the middle of a body that it sent, and have bytes of its own taken for a record.
 */
export const sealOf = (secret: Uint8Array, segment: string, offset: number): string =>
  new Bun.CryptoHasher('sha256', secret).update(`${segment}\n${offset}`).digest('hex').slice(0, 32)

/** A job's id: where its record is and a random part, all in hex digits. Any worker finds the record by it. */
export const formatJobId = ({ segment, offset, random }: JobPlace): string => {
  const [, worker, incarnation, number] = SEGMENT.exec(segment) ?? []
  if (number === undefined || !HEX_32.test(random)) throw new Error(`no job is at ${segment} ${offset} ${random}`)
  return `job_${random}${hex(worker!, 2)}${hex(incarnation!, 8)}${hex(number, 4)}${hex(offset, 8)}`
}

/** The place that an id names; undefined if it is no id. */
export const parseJobId = (id: string): JobPlace | undefined => {
  const found = ID.exec(id)
  if (!found) return undefined
  const [worker, incarnation, number, offset] = found.slice(2).map((part) => Number.parseInt(part, 16))
  return { random: found[1]!, segment: `w${worker}-${incarnation}-${number}`, offset: offset! }
}

const hex = (value: string | number, digits: number): string => Number(value).toString(16).padStart(digits, '0')
