import { SUBJECT, WORKER } from '../table/layout.ts'
import { type Subject, type Table, workerI32 } from '../table/table.ts'
import { CLOSED, giveRate, type RateState, state, stepNs, takeRate } from './gcra.ts'

/**
 * Rate limits of one call over several subjects (key, tenant, end user, model), all or none.
 *
 * Requests are known when a call begins. Tokens are known when it ends: until then the most that it can use is *held*,
 * beside the limit's theoretical arrival time, and does not run off with time. At the end the real number is taken at
 * that moment. So in any span of t seconds at most n + t·n/60 tokens are settled, however long calls take, and a call
 * that used less than it held makes room at once. (Taking the hold from the cell and giving the rest back later would
 * give back twice what time had given back already.)
 */

/** One subject's limit. */
export type RateClaim = { readonly subject: Subject; readonly per_minute: number }

/**
 * `refused` is -1 and `states` tell of each claim in order; or `refused` is the index of the first claim that does not
 * fit, `states` end with its state, and nothing is taken.
 */
export type RatesTaken = { readonly refused: number; readonly states: readonly RateState[] }

/** Takes one request from each limit or from none. */
export const takeRates = (table: Table, claims: readonly RateClaim[], now_ms: number): RatesTaken => {
  const states: RateState[] = []
  for (let index = 0; index < claims.length; index++) {
    const { subject, per_minute } = claims[index]!
    const taken = takeRate(table, subject, 'rate_tat_ns', per_minute, 1, now_ms)
    states.push(taken)
    if (taken.admitted) continue
    for (let at = 0; at < index; at++) giveRate(table, claims[at]!.subject, 'rate_tat_ns', claims[at]!.per_minute, 1)
    return { refused: index, states }
  }
  return { refused: -1, states }
}

/**
 * Holds so many tokens of each limit or of none; more than a limit never fits. What a worker held goes back by `reap`
 * when it dies. The subject's `amount` must serve nothing else.
 */
export const holdTokens = (
  table: Table,
  worker: number,
  claims: readonly RateClaim[],
  tokens: number,
  now_ms: number,
): RatesTaken => {
  const seq = workerI32(worker, WORKER.op_seq)
  const states: RateState[] = []
  const now_ns = nsOf(now_ms)
  let refused = -1
  Atomics.add(table.i32, seq, 1)
  for (let index = 0; index < claims.length && refused < 0; index++) {
    const held = hold(table, worker, claims[index]!, tokens, now_ns)
    states.push(held)
    if (held.admitted) continue
    for (let at = 0; at < index; at++) release(table, worker, claims[at]!.subject, BigInt(tokens))
    refused = index
  }
  Atomics.add(table.i32, seq, 1)
  return { refused, states }
}

/**
 * Ends what {@link holdTokens} began, exactly once: `actual` tokens are taken now, beyond the limit if they are more than
 * were held, and the hold is gone.
 */
export const settleTokens = (
  table: Table,
  worker: number,
  claims: readonly RateClaim[],
  held: number,
  actual: number,
  now_ms: number,
): void => {
  const seq = workerI32(worker, WORKER.op_seq)
  const now_ns = nsOf(now_ms)
  Atomics.add(table.i32, seq, 1)
  for (const { subject, per_minute } of claims) {
    // Taken before the hold goes: for a moment both count, never neither.
    if (actual > 0 && per_minute > 0) push(table, subject, BigInt(actual * stepNs(per_minute)), now_ns)
    release(table, worker, subject, BigInt(held))
  }
  Atomics.add(table.i32, seq, 1)
}

const nsOf = (now_ms: number): bigint => BigInt(Math.floor(now_ms)) * 1_000_000n

const hold = (
  table: Table,
  worker: number,
  { subject, per_minute }: RateClaim,
  tokens: number,
  now_ns: bigint,
): RateState => {
  if (per_minute === 0) return CLOSED
  const { i64 } = table
  const step_ns = stepNs(per_minute)
  const full_ns = per_minute * step_ns
  const by = BigInt(tokens)
  for (;;) {
    // The hold is read before the time, and the time again after: a call that settles in between is seen in one or both.
    const held = Atomics.load(i64, subject + SUBJECT.amount)
    const tat = Atomics.load(i64, subject + SUBJECT.token_tat_ns)
    const used_ns = Math.max(0, Number(tat - now_ns)) + Number(held) * step_ns
    const over_ns = used_ns + tokens * step_ns - full_ns
    if (over_ns > 0) return state(false, per_minute, used_ns, step_ns, full_ns, over_ns)
    if (Atomics.compareExchange(i64, subject + SUBJECT.amount, held, held + by) !== held) continue
    if (Atomics.load(i64, subject + SUBJECT.token_tat_ns) === tat) {
      Atomics.add(i64, subject + SUBJECT.amount_columns + worker, by)
      return state(true, per_minute, used_ns + tokens * step_ns, step_ns, full_ns, 0)
    }
    Atomics.sub(i64, subject + SUBJECT.amount, by)
  }
}

const push = ({ i64 }: Table, subject: Subject, cost_ns: bigint, now_ns: bigint): void => {
  const cell = subject + SUBJECT.token_tat_ns
  for (let seen = Atomics.load(i64, cell); ;) {
    const was = Atomics.compareExchange(i64, cell, seen, (seen > now_ns ? seen : now_ns) + cost_ns)
    if (was === seen) return
    seen = was
  }
}

const release = ({ i64 }: Table, worker: number, subject: Subject, by: bigint): void => {
  Atomics.sub(i64, subject + SUBJECT.amount_columns + worker, by)
  Atomics.sub(i64, subject + SUBJECT.amount, by)
}
