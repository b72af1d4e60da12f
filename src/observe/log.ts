import { writeSync } from 'node:fs'
import { nowMs } from '../base/clock.ts'

/** Levels of a log line. */
export type Level = 'debug' | 'info' | 'warn' | 'error'

/** Fields of a log line. Never a secret, never a body. */
export type LogFields = Readonly<Record<string, unknown>>

/** Writes one event. Events are named `what_happened`; the fields say to whom and why. */
export type Log = (level: Level, event: string, fields?: LogFields) => void

/** Longest text of one field; the true size is kept beside it. */
const TEXT_MAX = 2_048
/** Lines a second from one process; more are counted and told in one line. */
const LINES_PER_S_MAX = 500

/**
 * A log to stderr: JSON lines, or readable ones on a terminal. Bounded in length and in lines a second, so an error in a
 * loop cannot fill a disk.
 */
export const openLog = (
  process_name: string,
  pretty: boolean,
  write = (line: string) => void writeSync(2, line),
): Log => {
  let second = 0
  let lines = 0
  let dropped = 0
  const put = (level: Level, event: string, fields: LogFields) => {
    const at = new Date(nowMs()).toISOString()
    const line = pretty
      ? `${at.slice(11, 23)} ${level.padEnd(5)} ${process_name.padEnd(10)} ${event} ${Object.entries(fields)
          .map(([name, value]) => `${name}=${plainOf(value)}`)
          .join(' ')}\n`
      : `${textOf({ at, level, process: process_name, event, ...fields })}\n`
    try {
      write(line)
    } catch (cause) {
      // A closed or full stderr must not take a worker down; nothing is left to tell it to.
      void cause
    }
  }
  return (level, event, fields = {}) => {
    const now_s = Math.floor(nowMs() / 1000)
    if (now_s !== second) {
      if (dropped > 0) put('warn', 'log_lines_dropped', { count: dropped })
      second = now_s
      lines = 0
      dropped = 0
    }
    if (lines++ >= LINES_PER_S_MAX) dropped++
    else put(level, event, fields)
  }
}

// An error deep inside, as the cause of a failure, would be shown as {}.
const textOf = (value: unknown): string => JSON.stringify(value, (_name, inside: unknown) => shown(inside))

const plainOf = (value: unknown): string => {
  const plain = shown(value)
  return typeof plain === 'string' ? plain : textOf(plain)
}

const shown = (value: unknown): unknown => {
  if (value instanceof Error) return cut(value.stack ?? value.message)
  if (typeof value === 'string') return cut(value)
  if (typeof value === 'bigint') return value.toString()
  return value
}

const cut = (text: string): string =>
  text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX).toWellFormed()}… (${text.length} characters)`
