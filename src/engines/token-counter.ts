import { setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Log } from '../observe/log.ts'
import type { CountAnswer, CountQuestion } from './token-count-child.ts'
import type { Encoding } from './token-pieces.ts'

/** Counts tokens with a tokenizer, in a process of its own, which is started when it is first needed. */
export type TokenCounter = {
  /** Tokens of all texts together; undefined if that is not known in time, or the process cannot be had. Never rejects. */
  count(encoding: Encoding, texts: readonly string[], within_ms: number): Promise<number | undefined>
  /** Has an encoding loaded that is likely to be needed. */
  warm(encoding: Encoding): void
  /** True if an encoding is loaded, so that an answer takes milliseconds. */
  ready(encoding: Encoding): boolean
  /** Ends the process; what still waits is not counted. */
  stop(): void
}

/** Text that may wait to be counted, in UTF-16 units; what comes on top is not counted. */
export const WAITING_CHARS_MAX = 16 * 1024 * 1024
/** Questions that are with the process at once: the rest waits here, where it can be taken back. */
const ASKED_MAX = 16
/** A process that says nothing for so long is ended; loading takes less than a second. */
const SILENCE_MS = 15_000
/** How soon after its end it may be started again. */
const AGAIN_MS = 5_000
/** Without a question for so long the process is ended, and its memory free. */
const IDLE_MS = 600_000
/** It yields to whoever serves. */
const NICENESS = 10

const CHILD = fileURLToPath(new URL('./token-count-child.ts', import.meta.url))
const LONG_MS = 60_000

type Waiting = CountQuestion & { readonly chars: number; readonly tell: (tokens: number | undefined) => void }

/** A counter whose process is not started yet. */
export const openTokenCounter = (log: Log, tick: () => number, child: string = CHILD): TokenCounter =>
  new ChildCounter(log, tick, child)

class ChildCounter implements TokenCounter {
  readonly #log: Log
  readonly #tick: () => number
  readonly #path: string
  #child: Bun.Subprocess | undefined
  #last_id = 0
  #chars = 0
  readonly #queue = new Map<number, Waiting>()
  readonly #asked = new Map<number, Waiting>()
  readonly #loaded = new Set<Encoding>()
  /** Being loaded: a question without text takes no room, so one is all there may be. */
  readonly #warming = new Set<Encoding>()
  #again_tick_ms = 0
  #heard_tick_ms = 0
  #guard: ReturnType<typeof setInterval> | undefined

  constructor(log: Log, tick: () => number, path: string) {
    this.#log = log
    this.#tick = tick
    this.#path = path
  }

  ready(encoding: Encoding): boolean {
    return this.#loaded.has(encoding)
  }

  warm(encoding: Encoding): void {
    if (this.#loaded.has(encoding) || this.#warming.has(encoding)) return
    this.#warming.add(encoding)
    void this.count(encoding, [''], LONG_MS).then(() => this.#warming.delete(encoding))
  }

  count(encoding: Encoding, texts: readonly string[], within_ms: number): Promise<number | undefined> {
    const chars = texts.reduce((sum, text) => sum + text.length, 0)
    if (this.#chars + chars > WAITING_CHARS_MAX || !this.#start()) return Promise.resolve(undefined)
    this.#chars += chars
    const id = ++this.#last_id
    const { promise, resolve } = Promise.withResolvers<number | undefined>()
    const timer = setTimeout(() => {
      // What the process has already must come back before another takes its place.
      this.#forget(this.#queue, id)
      resolve(undefined)
    }, within_ms)
    const tell = (tokens: number | undefined): void => {
      clearTimeout(timer)
      resolve(tokens)
    }
    this.#queue.set(id, { id, encoding, texts, chars, tell })
    this.#ask()
    return promise
  }

  stop(): void {
    this.#child?.kill('SIGKILL')
    this.#gone()
  }

  #start(): boolean {
    if (this.#child !== undefined) return true
    if (this.#tick() < this.#again_tick_ms) return false
    this.#heard_tick_ms = this.#tick()
    try {
      const child = Bun.spawn({
        cmd: [process.execPath, '--smol', this.#path],
        stdio: ['ignore', 'ignore', 'ignore'],
        serialization: 'advanced',
        ipc: (told: CountAnswer) => this.#told(told),
        onExit: () => {
          if (this.#child === child) this.#gone()
        },
      })
      this.#child = child
      child.unref()
      setPriority(child.pid, NICENESS)
    } catch (cause) {
      this.#log('warn', 'token_counter_not_started', { cause })
      this.stop()
      return false
    }
    this.#guard = setInterval(() => this.#look(), 1_000)
    this.#guard.unref()
    return true
  }

  #ask(): void {
    for (const waiting of this.#queue.values()) {
      if (this.#asked.size >= ASKED_MAX) return
      if (this.#asked.size === 0) this.#heard_tick_ms = this.#tick()
      this.#queue.delete(waiting.id)
      this.#asked.set(waiting.id, waiting)
      const { id, encoding, texts } = waiting
      try {
        this.#child?.send({ id, encoding, texts } satisfies CountQuestion)
      } catch (cause) {
        this.#log('warn', 'token_counter_lost', { cause })
        return this.stop()
      }
    }
  }

  #told({ id, tokens }: CountAnswer): void {
    this.#heard_tick_ms = this.#tick()
    const asked = this.#forget(this.#asked, id)
    if (asked === undefined) return
    if (tokens >= 0) this.#loaded.add(asked.encoding)
    asked.tell(tokens < 0 ? undefined : tokens)
    this.#ask()
  }

  #forget(from: Map<number, Waiting>, id: number): Waiting | undefined {
    const found = from.get(id)
    if (found === undefined) return undefined
    from.delete(id)
    this.#chars -= found.chars
    return found
  }

  /** Ends a process that hangs, or that nobody needs. */
  #look(): void {
    const quiet_ms = this.#tick() - this.#heard_tick_ms
    if (this.#asked.size > 0 ? quiet_ms < SILENCE_MS : quiet_ms < IDLE_MS) return
    if (this.#asked.size > 0) this.#log('warn', 'token_counter_silent', { quiet_ms })
    this.stop()
  }

  /** The process is no more. */
  #gone(): void {
    clearInterval(this.#guard)
    this.#child = undefined
    this.#loaded.clear()
    this.#again_tick_ms = this.#asked.size > 0 ? this.#tick() + AGAIN_MS : 0
    const left = [...this.#asked.values(), ...this.#queue.values()]
    this.#asked.clear()
    this.#queue.clear()
    this.#chars = 0
    for (const waiting of left) waiting.tell(undefined)
  }
}
