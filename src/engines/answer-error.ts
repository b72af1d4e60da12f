import { limits } from '../base/limits.ts'
import { readJson } from './json-value.ts'

/** An error of an engine, whatever its shape; fields that it lacks are empty. Each is cut at `limits.text_bytes_max`. */
export type AnswerError = { readonly message: string; readonly type: string; readonly code: string }

/** Larger errors are not parsed: their text is of no use to anyone. */
const ERROR_BYTES_MAX = 64 * 1024

/**
 * Reads the value of an `error` member, `[start, end)`: an object (OpenAI, vLLM) or a bare message (TGI, Ollama).
 * Undefined if it says that there is none: null, false or an empty string. Requires valid JSON.
 */
export const readError = (bytes: Uint8Array, start: number, end: number): AnswerError | undefined => {
  if (end - start > ERROR_BYTES_MAX) return { message: '', type: '', code: '' }
  return errorOf(readJson(bytes, { start, end }))
}

/** The same for a value that is parsed already. */
export const errorOf = (value: unknown): AnswerError | undefined => {
  if (value === null || value === undefined || value === false || value === '') return undefined
  if (typeof value !== 'object') return { message: text(value), type: '', code: '' }
  const { message, type, code } = value as Readonly<Record<string, unknown>>
  return { message: text(message), type: text(type), code: text(code) }
}

const text = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value).slice(0, limits.text_bytes_max)
    : ''
