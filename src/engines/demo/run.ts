import { tickMs } from '../../base/clock.ts'
import { observe, type FinishedReason, type ModelState } from './metrics.ts'
import { Refusal } from './refusal.ts'
import type { Ticket } from './scheduler.ts'

/** When tokens fall due, from the moment a call has its slot. */
export type Pace = { readonly ttft_ms: number; readonly token_ms: number }

/**
 * A call in a model from its arrival to its end: its slot, its clock and its figures. Whatever happens, {@link Run.end}
 * is what ends it, and only the first end counts: the slot is free at once.
 */
export class Run {
  over = false
  readonly ticket: Ticket
  readonly #model: ModelState
  readonly #arrived_ms = tickMs()
  readonly #prompt_tokens: number
  #first_ms = 0
  #generated = 0
  #started_ms = 0
  #timer: Timer | undefined
  #wake: (() => void) | undefined

  constructor(model: ModelState, ticket: Ticket, prompt_tokens: number) {
    this.#model = model
    this.ticket = ticket
    this.#prompt_tokens = prompt_tokens
    if (!ticket.started) this.#begin()
  }

  /** Waits for the slot; false if the call ended before it had one. */
  async started(): Promise<boolean> {
    if (this.#started_ms > 0) return !this.over
    await this.ticket.started
    if (this.over) return false
    this.#begin()
    return true
  }

  /** Milliseconds since the call has its slot. */
  elapsed(): number {
    return tickMs() - this.#started_ms
  }

  /** Waits until so long after the call got its slot; false if the call ended first. */
  async until(elapsed_ms: number): Promise<boolean> {
    const left_ms = elapsed_ms - this.elapsed()
    if (this.over || left_ms <= 0) return !this.over
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      this.#timer = setTimeout(resolve, Math.ceil(left_ms))
    })
    return !this.over
  }

  /** Counts tokens as generated. */
  generated(tokens: number): void {
    if (this.over) return
    if (this.#first_ms === 0) {
      this.#first_ms = tickMs()
      observe(this.#model.first_token_s, (this.#first_ms - this.#arrived_ms) / 1000)
    }
    this.#generated += tokens
    this.#model.generation_tokens += tokens
    this.#model.held_tokens += tokens
  }

  end(reason: FinishedReason): void {
    if (this.over) return
    this.over = true
    const ran = this.ticket.state === 'running' && this.#started_ms > 0
    clearTimeout(this.#timer)
    this.#model.slots.leave(this.ticket)
    this.#wake?.()
    this.#model.finished[reason]++
    if (ran) this.#model.held_tokens -= this.#prompt_tokens + this.#generated
    if (!ran || reason === 'abort') return
    const now_ms = tickMs()
    observe(this.#model.whole_s, (now_ms - this.#arrived_ms) / 1000)
    const gaps = this.#generated - 1
    if (gaps > 0) observe(this.#model.between_tokens_s, (now_ms - this.#first_ms) / 1000 / gaps, gaps)
  }

  #begin(): void {
    this.#started_ms = tickMs()
    observe(this.#model.queue_s, (this.#started_ms - this.#arrived_ms) / 1000)
    this.#model.prompt_tokens += this.#prompt_tokens
    this.#model.held_tokens += this.#prompt_tokens
  }
}

/** Takes a place in the model, or says that its queue is full. */
export const enter = (model: ModelState, prompt_tokens: number): Run | Refusal => {
  const ticket = model.slots.enter()
  return ticket ? new Run(model, ticket, prompt_tokens) : new Refusal(503, 'The queue of this model is full.')
}

/** An answer in one piece: when its first and last tokens are due after the slot, how many there are, and how it is written. */
export type Whole = {
  readonly ttft_ms: number
  readonly total_ms: number
  readonly tokens: number
  readonly reason: FinishedReason
  /** Must not throw. */
  render(): Response
}

/** Answers in one piece, when its last token is due. The client's leaving ends the run at once. */
export const answerWhole = (run: Run, request: Request, whole: Whole): Response | Promise<Response> => {
  if (run.ticket.started || whole.total_ms > 0) return answerLater(run, request, whole)
  run.generated(whole.tokens)
  run.end(whole.reason)
  return whole.render()
}

const answerLater = async (run: Run, request: Request, whole: Whole): Promise<Response> => {
  const leave = () => run.end('abort')
  request.signal.addEventListener('abort', leave)
  if (request.signal.aborted) leave()
  const first = Math.min(whole.tokens, 1)
  if ((await run.started()) && (await run.until(whole.ttft_ms))) run.generated(first)
  if (run.over || !(await run.until(whole.total_ms))) return new Response(null, { status: 499 })
  request.signal.removeEventListener('abort', leave)
  run.generated(whole.tokens - first)
  run.end(whole.reason)
  return whole.render()
}

export type Frames = {
  /** Written before the first step, with it. */
  readonly opening: string
  /** How many steps there are; step `at` is one token of each choice that has so many. */
  readonly steps: number
  step(at: number): string
  tokens(at: number): number
  readonly closing: string
}

const FLUSH_MS = 10

/** Steps in one write, so that a fast stream does not pile up in memory. */
const STEPS_AT_ONCE = 256

/** Answers step by step as an event stream that generates only what is read. `cut_after` breaks it after so many steps. */
export const answerStream = (
  run: Run,
  pace: Pace,
  frames: Frames,
  reason: FinishedReason,
  cut_after: number | undefined,
): ReadableStream<Uint8Array> => {
  let next = 0
  const dueNow = (): number => {
    const since_first_ms = run.elapsed() - pace.ttft_ms
    if (since_first_ms < 0) return 0
    const due = pace.token_ms === 0 ? frames.steps : Math.floor(since_first_ms / pace.token_ms) + 1
    return Math.min(due, next + STEPS_AT_ONCE, frames.steps, cut_after ?? frames.steps)
  }
  return new ReadableStream<Uint8Array>(
    {
      async pull(out) {
        if (!(await run.started())) return
        if (!(await run.until(pace.ttft_ms + next * pace.token_ms))) return
        // A timer may fire a fraction early; the step it was set for is due all the same.
        const due = Math.max(dueNow(), Math.min(next + 1, frames.steps))
        if (cut_after !== undefined && next >= cut_after) {
          // What was written must be on its way first: the break would overtake it.
          if (!(await run.until(run.elapsed() + FLUSH_MS))) return
          run.end('error')
          return out.error(new Error('cut by x-demo-cut-after-tokens'))
        }
        let text = next === 0 ? frames.opening : ''
        let tokens = 0
        for (; next < due; next++) {
          text += frames.step(next)
          tokens += frames.tokens(next)
        }
        run.generated(tokens)
        const last = next === frames.steps
        out.enqueue(Buffer.from(last ? text + frames.closing : text))
        if (!last) return
        run.end(reason)
        out.close()
      },
      cancel() {
        run.end('abort')
      },
    },
    { highWaterMark: 0 },
  )
}
