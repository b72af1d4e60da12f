import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { bareHost, isPrivate, urlFault } from './webhook-url.ts'

/** Pauses between deliveries; after the last one the webhook is given up. */
export const PAUSES_MS: readonly number[] = [1_000, 5_000, 30_000, 120_000, 600_000]
const TIMEOUT_MS = 10_000
/** Deliveries of one worker at once, and ones that wait. */
const AT_ONCE_MAX = 16
const WAITING_MAX = 100_000

/** What is to be told: the job's JSON, made when it is sent. */
export type Notice = {
  readonly job_id: string
  readonly url: string
  readonly secret: string
  readonly body: () => Buffer | undefined
  /** Called once, at the end. */
  readonly over: (delivered: boolean) => void
}

export type WebhookOptions = {
  readonly allow_private: () => boolean
  readonly now: () => number
  readonly pauses_ms?: readonly number[]
  readonly log: (event: string, detail: Record<string, unknown>) => void
}

/**
 * The signature of a webhook: `t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 of `SECONDS.BODY` under the tenant's secret.
 * A receiver computes it again, compares, and refuses what is too old.
 */
export const signatureOf = (secret: string, seconds: number, body: Uint8Array): string =>
  `t=${seconds},v1=${new Bun.CryptoHasher('sha256', secret).update(`${seconds}.`).update(body).digest('hex')}`

/** Tells the ends of jobs: at least once each, until a 2xx comes or it is given up. Redirects are not followed. */
export class Webhooks {
  readonly #options: WebhookOptions
  readonly #waiting: { readonly notice: Notice; readonly attempt: number }[] = []
  readonly #timers = new Set<Timer>()
  #running = 0
  #stopped = false

  constructor(options: WebhookOptions) {
    this.#options = options
  }

  tell(notice: Notice, attempt = 0): void {
    if (this.#waiting.length + this.#timers.size >= WAITING_MAX) return notice.over(false)
    this.#waiting.push({ notice, attempt })
    this.#next()
  }

  /** What is not told yet is told by the jobs' next owner. */
  stop(): void {
    this.#stopped = true
    for (const timer of this.#timers) clearTimeout(timer)
  }

  #next(): void {
    while (!this.#stopped && this.#running < AT_ONCE_MAX && this.#waiting.length > 0) {
      const { notice, attempt } = this.#waiting.shift()!
      this.#running++
      void this.#deliver(notice, attempt).finally(() => {
        this.#running--
        this.#next()
      })
    }
  }

  async #deliver(notice: Notice, attempt: number): Promise<void> {
    const { log, pauses_ms = PAUSES_MS } = this.#options
    const body = notice.body()
    if (body === undefined) return notice.over(false)
    const trouble = await this.#send(notice, body).catch((cause: unknown) => String(cause))
    if (this.#stopped) return
    if (trouble === undefined) return notice.over(true)
    const pause_ms = pauses_ms[attempt]
    log('webhook_failed', { job: notice.job_id, attempt: attempt + 1, because: trouble, again_in_ms: pause_ms ?? null })
    if (pause_ms === undefined) return notice.over(false)
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      this.tell(notice, attempt + 1)
    }, pause_ms)
    this.#timers.add(timer)
  }

  /** Undefined if it was taken, else why not. */
  async #send({ url: text, secret, job_id }: Notice, body: Buffer): Promise<string | undefined> {
    const allow_private = this.#options.allow_private()
    const fault = urlFault(text, allow_private)
    if (fault !== undefined) return fault
    const url = new URL(text)
    const host = bareHost(url)
    const addresses = isIP(host) === 0 ? (await lookup(host, { all: true })).map(({ address }) => address) : [host]
    if (!allow_private && addresses.some(isPrivate)) return `${host} is a private address`
    const seconds = Math.floor(this.#options.now() / 1000)
    const address = addresses[0]!
    const target = new URL(url)
    // The address that was looked at is the one that is asked: a name could lead elsewhere the next time.
    target.hostname = isIP(address) === 6 ? `[${address}]` : address
    const response = await fetch(target, {
      method: 'POST',
      redirect: 'manual',
      signal: AbortSignal.timeout(TIMEOUT_MS),
      body: body as BodyInit,
      headers: {
        host: url.host,
        'content-type': 'application/json',
        'user-agent': 'weir',
        'x-weir-job-id': job_id,
        'x-weir-signature': signatureOf(secret, seconds, body),
      },
      ...(url.protocol === 'https:' && { tls: { serverName: host } }),
    } as RequestInit)
    await response.body?.cancel()
    return response.ok ? undefined : `status ${response.status}`
  }
}
