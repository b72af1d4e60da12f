import type { Target } from '../balance/catalogue.ts'
import { endAttempt } from '../balance/decision.ts'
import { releaseProbe } from '../balance/health.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { Exchange } from '../engines/transport.ts'
import { attempt } from './attempt.ts'
import type { Call, Routed } from './call.ts'
import { Delivered } from './delivered.ts'
import { judge } from './engine-record.ts'
import type { Flight, Leg, Second } from './flight.ts'
import { hedgeDelayMs, noteWait } from './hedge-delay.ts'
import type { House } from './house.ts'
import { answeredBy, recordAttempt } from './intent.ts'
import { goesOn } from './leave.ts'
import { type Answer, Miss } from './outcome.ts'
import { leavePlace } from './place.ts'
import { nextTarget } from './route.ts'
import { streams } from './upstream-request.ts'
import { type Overdue, Vigil } from './vigil.ts'

/** What an engine gave, and which. */
export type Outcome = { readonly target: Target; readonly outcome: Answer | Miss }

/**
 * Asks an engine, and when its first token (or its answer, if that comes whole) is late and the model is set so, a second
 * one as well: the first to answer wins, and the other engine is told to stop. One that fails leaves it to the other; its
 * miss is in its record. The model's retry budget pays for the second. For a model that has `hedge` set.
 */
export const hedged = async (call: Routed, house: House, flight: Flight, target: Target): Promise<Outcome> => {
  const first = attempt(call, house, flight, target)
  const kind = streams(call) ? 'stream' : 'whole'
  const asked_tick_ms = house.tick()
  const won = await raced(call, house, flight, target, first, hedgeDelayMs(call, house, kind))
  const { outcome } = won
  if (!(outcome instanceof Miss) && outcome.kind === kind) noteWait(call, house, kind, house.tick() - asked_tick_ms)
  return won
}

const raced = async (
  call: Routed,
  house: House,
  flight: Flight,
  target: Target,
  first: Promise<Answer | Miss>,
  after_ms: number | undefined,
): Promise<Outcome> => {
  if (after_ms === undefined || (await isInTime(first, after_ms))) return { target, outcome: await first }
  const may = flight.attempts < limits.attempts_max && goesOn(call, flight)
  const second = may ? nextTarget(call, house, [...flight.tried, target]) : undefined
  if (second === undefined || second instanceof Failure) return { target, outcome: await first }
  flight.attempts++
  recordAttempt(call, house, second, 'hedge')
  const leg = new SecondLeg(house, flight)
  flight.second = leg
  const one = first.then((outcome) => ({ target, outcome }))
  const two = attempt(call, house, leg, second).then((outcome) => ({ target: second, outcome }))
  let won = await Promise.race([one, two])
  // Both are given up: what either engine was sent counts, and the call is of that of which more came.
  if (won.outcome instanceof Miss && flight.givenUp()) {
    const [first_gave, second_gave] = await Promise.all([one, two])
    won = (leg.half?.length ?? 0) > (flight.half?.length ?? 0) ? second_gave : first_gave
  }
  if (won.outcome instanceof Miss && won.outcome.verdict.next) {
    // A connection that had died of idleness says nothing of its engine.
    if (won.outcome.stale) releaseProbe(house.table, won.target.engine.subject)
    else judge(call, house, won.target, won.outcome)
    flight.tried.push(won.target)
    leavePlace(call, house, won.target)
    if (won.target === target) flight.dropFirst()
    else leg.cancel()
    won = await (won.target === target ? two : one)
  } else {
    const loser = won.target === target ? second : target
    flight.tried.push(loser)
    lose(call, house, loser, won.outcome instanceof Miss ? won.outcome.because : 'another was quicker')
  }
  if (won.target === target) flight.dropSecond()
  else leg.adopt()
  const open: Call = call
  open.target = won.target
  if (won.target === target && !(won.outcome instanceof Miss) && won.outcome.kind === 'stream')
    recordWinner(call, house)
  return won
}

/** Writes down that the answer is not from the engine that was asked last, as a journal without an ending would have it. */
const recordWinner = (call: Routed, house: House): void => {
  if (!house.journal.has_room()) return
  const position = house.journal.append({
    kind: 'progress',
    call_id: call.id,
    at_ms: house.now(),
    prompt_tokens: 0,
    completion_tokens: 0,
    usage_source: 'estimated',
    ...answeredBy(call),
  })
  if (position instanceof Failure)
    house.log('warn', 'winner_not_recorded', { call_id: call.id, because: position.code })
}

const isInTime = async (first: Promise<unknown>, after_ms: number): Promise<boolean> => {
  const { promise, resolve } = Promise.withResolvers<false>()
  const timer = setTimeout(resolve, after_ms, false)
  const in_time = await Promise.race([first, promise])
  clearTimeout(timer)
  return in_time !== false
}

/** An engine that was slower than another, or was given up with it: that proves nothing of it. */
const lose = (call: Routed, house: House, loser: Target, because: string): void => {
  const { name, subject } = loser.engine
  const after_ms = house.tick() - call.started_tick_ms
  endAttempt(call.decision, name, because, after_ms)
  releaseProbe(house.table, subject)
  leavePlace(call, house, loser)
}

/** The second engine's exchange, with a silence of its own; the whole call's deadlines and its client are the flight's. */
class SecondLeg implements Leg, Second {
  readonly vigil: Vigil
  readonly delivered: Delivered | undefined
  half: Uint8Array | undefined
  readonly #house: House
  readonly #flight: Flight
  #exchange: Exchange | undefined
  #silent = false
  #adopted = false

  constructor(house: House, flight: Flight) {
    this.#house = house
    this.#flight = flight
    this.delivered = flight.delivered && new Delivered()
    this.vigil = new Vigil(Number.POSITIVE_INFINITY, this)
    house.watch.add(this.vigil)
  }

  take(exchange: Exchange): void {
    this.#exchange = exchange
  }

  cancel(): void {
    this.#exchange?.cancel()
  }

  close(): void {
    this.#house.watch.remove(this.vigil)
  }

  /** Its answer is the call's from now on. */
  adopt(): void {
    this.#adopted = true
    this.#flight.dropFirst()
    this.#flight.delivered = this.delivered
    this.#flight.half = this.half
  }

  givenUp(): Miss | undefined {
    return this.#flight.givenUp()
  }

  get overdue(): Flight['overdue'] {
    const { overdue } = this.#flight
    return this.#silent ? 'silence' : overdue === 'silence' ? undefined : overdue
  }

  get reached(): boolean {
    return this.#flight.reached
  }

  set reached(is_reached: boolean) {
    this.#flight.reached = is_reached
  }

  get first_token_tick_ms(): number {
    return this.#flight.first_token_tick_ms
  }

  set first_token_tick_ms(tick_ms: number) {
    this.#flight.first_token_tick_ms = tick_ms
  }

  expired(overdue: Overdue): void {
    // That the call must end is the flight's to tell, which gives both exchanges up.
    if (overdue !== 'silence') return
    this.#silent = true
    this.cancel()
    if (this.#adopted) this.#flight.silence()
  }
}
