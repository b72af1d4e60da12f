import { Database } from 'bun:sqlite'
import { CH, D, DONE, end, json, script, sse200, US, wait, WHOLE, type Script } from '../kit/script.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { readSse } from '../kit/sse-read.ts'
import type { Roll } from '../kit/wait.ts'

/** A configuration with one engine and one free model; patient, since engines here are. */
export const houseConfig = (engine_url: string, server: object = {}) => ({
  server,
  engines: [{ name: 'e1', url: engine_url }],
  models: [{ name: 'm1', targets: [{ engine: 'e1' }], price: { input: '1', output: '2' } }],
  tenants: [{ name: 'acme' }],
})

const streamed = (pieces: number, pause_ms: number): Script =>
  script(
    sse200,
    ...Array.from({ length: pieces }, (_, piece) => [D(CH({ content: `p${piece} ` })), wait(pause_ms)]),
    D(CH({}, 'stop')),
    D(US(5, pieces)),
    DONE,
    end,
  )

/** An engine that answers what the request's user name asks for: `marker/stream pieces/pause`. */
export const markedEngine = () =>
  startHostileEngine({
    answers: (request) => {
      const body = request.json()
      const [, pieces = '1', pause = '0'] = String(body.user).split('/')
      if (body.stream) return streamed(Number(pieces), Number(pause))
      return script(wait(Number(pause)), json(200, WHOLE('hi', 5, 1)))
    },
  })

/** The body of a call. Every body differs by its marker, which is its end user in the ledger. */
export const marked = (marker: string, stream: boolean, pieces = 1, pause_ms = 0): string =>
  JSON.stringify({
    model: 'm1',
    user: `${marker}/${pieces}/${pause_ms}`,
    messages: [{ role: 'user', content: 'hi' }],
    ...(stream && { stream: true }),
  })

/** What became of a call, as its client saw it. */
export type Seen = {
  readonly body: string
  readonly status: number
  readonly whole: boolean
  readonly text: string
  /** Code of the error that the answer, or its last event, told. */
  readonly error?: string | undefined
}

/** Makes one call and reads its answer to the end; status 0 if the connection failed. */
export const call = async (url: string, key: string, body: string): Promise<Seen> => {
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body,
      keepalive: false,
    })
    if (!response.headers.get('content-type')?.includes('event-stream')) {
      const text = await response.text()
      return { body, status: response.status, whole: true, text, error: JSON.parse(text).error?.code }
    }
    const read = await readSse(response)
    return {
      body,
      status: response.status,
      whole: read.done && read.ended === 'whole',
      text: read.text(),
      error: read.errors().at(-1)?.code,
    }
  } catch {
    return { body, status: 0, whole: false, text: '' }
  }
}

/** Callers that go on one after the other until told to stop. Collects what they saw. */
export const startTraffic = (target: { url: string }, key: string, name: string, callers: number, roll: Roll) => {
  const seen: Seen[] = []
  let going = true
  let made = 0
  const caller = async () => {
    while (going) {
      const stream = roll(2) === 0
      const body = marked(`${name}-${made++}`, stream, stream ? 1 + roll(8) : 1, roll(25))
      const result = await call(target.url, key, body)
      seen.push(result)
      if (result.status === 0) await Bun.sleep(10)
    }
  }
  const all = Array.from({ length: callers }, caller)
  return {
    seen,
    stop: async () => {
      going = false
      await Promise.all(all)
    },
  }
}

/** How many rows each call has in the ledger, by its marker; the hashes of bodies are salted there. */
export const rowsByBody = (data: string): Map<string, number> => {
  const db = new Database(`${data}/ledger.db`, { readonly: true })
  try {
    const rows = db.query('SELECT end_user AS mark, count(*) AS n FROM calls GROUP BY 1').all()
    return new Map((rows as { mark: string; n: number }[]).map(({ mark, n }) => [mark, n]))
  } finally {
    db.close()
  }
}

export const markOf = (body: string): string => JSON.parse(body).user

/** Throws unless every body has exactly one row. */
export const expectOneRowEach = (data: string, bodies: Iterable<string>): true => {
  const rows = rowsByBody(data)
  const wrong = [...bodies]
    .map((body) => `${rows.get(markOf(body)) ?? 0} rows: ${body}`)
    .filter((says) => !says.startsWith('1 '))
  if (wrong.length > 0) throw new Error(`${wrong.length} calls without exactly one row, among them ${wrong[0]}`)
  return true
}
