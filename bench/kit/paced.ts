/** What became of one call of a paced load. Times are milliseconds; `at_ms` and `end_ms` on the monotonic clock. */
export type Paced = {
  readonly at_ms: number
  readonly end_ms: number
  /** Until the first bytes of the body. */
  readonly first_ms: number
  readonly status: number
  readonly engine: string
  readonly body: string
}

/** Sends so many calls a second until `until` says so, whatever becomes of them; answers with all of them. */
export const paced = async (
  per_s: number,
  ask: (nth: number) => Promise<Response>,
  until: () => boolean,
): Promise<Paced[]> => {
  const start_ms = performance.now()
  const running: Promise<Paced>[] = []
  while (!until()) {
    const due = Math.floor(((performance.now() - start_ms) / 1_000) * per_s)
    while (running.length < due) running.push(one(ask, running.length))
    await Bun.sleep(2)
  }
  return Promise.all(running)
}

/** {@link paced} for so many seconds. */
export const pacedFor = (seconds: number, per_s: number, ask: (nth: number) => Promise<Response>): Promise<Paced[]> => {
  const end_ms = performance.now() + seconds * 1_000
  return paced(per_s, ask, () => performance.now() >= end_ms)
}

const one = async (ask: (nth: number) => Promise<Response>, nth: number): Promise<Paced> => {
  const at_ms = performance.now()
  let first_ms = 0
  let body = ''
  try {
    const response = await ask(nth)
    const engine = response.headers.get('x-weir-engine') ?? ''
    const decoder = new TextDecoder()
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
      first_ms ||= performance.now() - at_ms
      body += decoder.decode(piece, { stream: true })
    }
    return { at_ms, end_ms: performance.now(), first_ms, status: response.status, engine, body }
  } catch (cause) {
    return { at_ms, end_ms: performance.now(), first_ms, status: 0, engine: '', body: `${body}\n${String(cause)}` }
  }
}

/** The value that a share of them does not exceed. */
export const quantile = (values: readonly number[], share: number): number => {
  const sorted = values.toSorted((one, other) => one - other)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}
