import { Failure } from '../base/failure.ts'

export type Usage = {
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
}
export type AnswerFacts = {
  readonly usage: Usage | undefined
  readonly finish_reason: string | undefined
  readonly text_bytes: number
  readonly error: { status: number | undefined } | undefined
}

const n = (v: unknown): number => (typeof v === 'number' && Number.isSafeInteger(v) && v >= 0 ? v : 0)
export const readUsage = (u: any): Usage | undefined =>
  u === null || typeof u !== 'object'
    ? undefined
    : {
        prompt_tokens: n(u.prompt_tokens),
        cached_tokens: n(u.prompt_tokens_details?.cached_tokens),
        completion_tokens: n(u.completion_tokens),
        reasoning_tokens: n(u.completion_tokens_details?.reasoning_tokens),
      }

const errorOf = (value: any) =>
  value?.error
    ? {
        status:
          typeof value.error.code === 'number'
            ? value.error.code
            : typeof value.error.status === 'number'
              ? value.error.status
              : undefined,
      }
    : undefined

export const wholeFacts = (bytes: Uint8Array): AnswerFacts | undefined => {
  try {
    const v = JSON.parse(Buffer.from(bytes).toString())
    return {
      usage: readUsage(v.usage),
      finish_reason: v.choices?.[0]?.finish_reason ?? undefined,
      text_bytes: Buffer.byteLength(JSON.stringify(v.choices ?? '')),
      error: errorOf(v),
    }
  } catch {
    return undefined
  }
}

export type EventFacts = {
  kind: 'done' | 'chunk' | 'malformed'
  usage: Usage | undefined
  usage_only: boolean
  finishes: [number, string][]
  begun: number[]
  text_bytes: number
  error: { status: number | undefined } | undefined
}
export const readEvent = (data: Uint8Array): EventFacts => {
  const text = Buffer.from(data).toString()
  const none: EventFacts = {
    kind: 'done',
    usage: undefined,
    usage_only: false,
    finishes: [],
    begun: [],
    text_bytes: 0,
    error: undefined,
  }
  if (text.trim() === '[DONE]') return none
  try {
    const v = JSON.parse(text)
    const choices: any[] = v.choices ?? []
    const usage = readUsage(v.usage)
    return {
      kind: 'chunk',
      usage,
      usage_only: usage !== undefined && choices.length === 0,
      finishes: choices.filter((c) => c.finish_reason).map((c) => [c.index ?? 0, c.finish_reason]),
      begun: choices.map((c) => c.index ?? 0),
      text_bytes: choices.reduce(
        (s, c) =>
          s +
          Buffer.byteLength(
            (c.delta?.content ?? '') +
              (c.delta?.reasoning_content ?? '') +
              (c.text ?? '') +
              (c.delta?.tool_calls ? JSON.stringify(c.delta.tool_calls) : ''),
          ),
        0,
      ),
      error: errorOf(v),
    }
  } catch {
    return { ...none, kind: 'malformed' }
  }
}

export class SseScanner {
  #rest = Buffer.alloc(0)
  feed(piece: Uint8Array): { bytes: Uint8Array; data: Uint8Array | undefined }[] | Failure {
    const all = Buffer.concat([this.#rest, piece])
    const out: { bytes: Uint8Array; data: Uint8Array | undefined }[] = []
    let from = 0
    for (;;) {
      const m = /\r\n\r\n|\n\n|\r\r/.exec(all.subarray(from).toString('latin1'))
      if (!m) break
      const end = from + m.index + m[0].length
      out.push(this.#event(all.subarray(from, end)))
      from = end
    }
    this.#rest = Buffer.from(all.subarray(from))
    return out
  }
  end() {
    return this.feed(Buffer.from('\n\n'))
  }
  #event(bytes: Uint8Array) {
    const lines = Buffer.from(bytes)
      .toString('latin1')
      .split(/\r\n|\n|\r/)
      .filter((l) => l.startsWith('data:'))
      .map((l) => l.slice(l[5] === ' ' ? 6 : 5))
    const data = lines.join('\n')
    return { bytes, data: data === '' ? undefined : Buffer.from(data, 'latin1') }
  }
}

export const joinUrl = (base: string, path: string): string => {
  const url = new URL(base)
  const prefix = url.pathname.replace(/\/+$/, '')
  url.pathname = prefix.endsWith('/v1') ? prefix + path.slice(3) : prefix + path
  return url.href
}
export const retryAfterMs = (value: string | undefined, _now: number, max: number): number | undefined =>
  value && /^\d+$/.test(value) ? Math.min(Number(value) * 1000, max) : undefined
