import type { Database } from 'bun:sqlite'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Difference } from './check-note.ts'
import { type Frame, type FrameRecord, readFrames } from './fsck-frames.ts'
import type { Note } from './fsck-log.ts'
import { refusalCheck } from './fsck-refusals.ts'
import { sha256 } from './hash.ts'

type Row = Readonly<Record<string, bigint | string | Uint8Array | null>>
type Place = { readonly segment: number; readonly offset: number }
/** From `again` on calls may be open that are not stored. */
type Position = Place & { readonly finished: boolean; readonly again: Place | undefined }

/** The journal's files against the ledger: everything before a series' position is in the tables as it was written. */
export const checkJournal = (folder: string, db: Database, note: Note): { records: number; waiting: number } => {
  const names = readdirSync(folder).filter((name) => /^w\d{2}-\d{6}-\d{6}\.journal$/.test(name))
  const by_series = Map.groupBy(names.toSorted(), (name) => name.slice(0, 10))
  const check = recordCheck(db)
  let records = 0
  let waiting = 0
  for (const position of positionsOf(db).values()) {
    const { series, finished, again } = position
    if (!finished && !by_series.has(series)) throw new Difference(`journal ${series} is not finished, and has no file`)
    if (again !== undefined && (finished || !isFrom(again, position.segment, position.offset)))
      throw new Difference(
        `journal ${series} is to be read again from a place that it has not come to, or after its end`,
      )
  }
  for (const [series, segments] of by_series) {
    const position = positionsOf(db).get(series)
    const numbers = segments.map((name) => Number(name.slice(11, 17)))
    const gap = numbers.findIndex((number, at) => at > 0 && number !== numbers[at - 1]! + 1)
    if (gap > 0) throw new Difference(`journal ${series}: segment ${numbers[gap]! - 1} is missing`)
    for (const [nth, name] of segments.entries()) {
      const posted = postedFrames(join(folder, name), name, numbers[nth]!, position, note)
      for (const { record, offset } of posted.frames) {
        const young = isFrom(position?.again, numbers[nth]!, offset)
        if (young && check.isOpen(record)) waiting++
        else check.record(record, `journal ${name} at ${offset}`)
      }
      records += posted.frames.length
      waiting += posted.waiting.length
      for (const frame of posted.waiting) check.waiting(frame.record, position === undefined, name)
    }
  }
  check.finish()
  return { records, waiting }
}

const positionsOf = (db: Database): Map<string, Position & { series: string }> =>
  new Map(
    db
      .prepare<StoredPosition, []>('SELECT * FROM positions')
      .all()
      .map(({ series, segment, offset, finished, again_segment, again_offset }) => [
        series,
        {
          ...{ series, segment: Number(segment), offset: Number(offset), finished: finished === 1n },
          // A ledger that this version has not opened yet lacks the columns.
          again:
            again_segment == null && again_offset == null
              ? undefined
              : { segment: Number(again_segment ?? NaN), offset: Number(again_offset ?? NaN) },
        },
      ]),
  )

type StoredPosition = {
  readonly series: string
  readonly segment: bigint
  readonly offset: bigint
  readonly finished: bigint
} & {
  readonly [name in 'again_segment' | 'again_offset']?: bigint | null
}

const isFrom = (place: Place | undefined, segment: number, offset: number): boolean =>
  place !== undefined && (segment > place.segment || (segment === place.segment && offset >= place.offset))

/** The frames of a segment before the position of its series, and those after it, which wait to be posted. */
const postedFrames = (
  path: string,
  name: string,
  segment: number,
  position: Position | undefined,
  note: Note,
): { frames: readonly Frame[]; waiting: readonly Frame[] } => {
  const { frames, tail, tail_at } = readFrames(path, name)
  if (tail === 'torn') note(`journal ${name}: the bytes at ${tail_at} are no frame, and nothing after them is read`)
  if (position === undefined || segment > position.segment) {
    if (position?.finished && frames.length > 0)
      throw new Difference(`journal ${name} has ${frames.length} records after the end of its series`)
    return { frames: [], waiting: frames }
  }
  if (segment < position.segment) {
    if (tail !== 'segment_ends')
      throw new Difference(
        `journal ${name} is damaged at ${tail_at}, and the ledger has read segment ${position.segment}`,
      )
    return { frames, waiting: [] }
  }
  const before = frames.filter(({ offset }) => offset < position.offset)
  const reached = before.at(-1)?.next ?? 64
  if (reached !== position.offset)
    throw new Difference(`journal ${name} is damaged at ${reached}, and the ledger has read up to ${position.offset}`)
  if (position.finished && before.length < frames.length)
    throw new Difference(`journal ${name} has ${frames.length - before.length} records after the end of its series`)
  return { frames: before, waiting: frames.slice(before.length) }
}

const recordCheck = (db: Database) => {
  const call = db.prepare<Row, [string]>('SELECT * FROM calls WHERE id = ?')
  const open = db.prepare<Row, [string]>('SELECT 1 FROM open_calls WHERE call_id = ?')
  const decision = db.prepare<Row, [string]>('SELECT at_ms, text FROM decisions WHERE call_id = ?')
  const met = { intent: new Set<string>(), ending: new Set<string>(), decision: new Set<string>() }
  const refused = refusalCheck(db)
  const attempt = db.prepare<Row, [string, string]>('SELECT 1 FROM attempts WHERE call_id = ? AND engine = ? AND n > 1')
  return {
    /** Whether a record is of a call that has no row. */
    isOpen: (record: FrameRecord | undefined): boolean =>
      record !== undefined &&
      record.kind !== 'refusals' &&
      record.kind !== 'decision' &&
      call.get(String(record.fields['call_id'])) === null,
    record: (record: FrameRecord | undefined, where: string): void => {
      if (record === undefined) return
      const { kind, fields } = record
      if (kind === 'refusals') {
        refused.said(fields)
        return
      }
      const id = String(fields['call_id'])
      if (kind === 'decision') {
        // Of several the first counts; of a call that was refused there is no row.
        if (met.decision.has(id)) return
        met.decision.add(id)
        const kept = decision.get(id)
        if (
          String(kept?.['text']) !== fields['text'] ||
          Number(kept?.['at_ms']) !== Math.round(Number(fields['at_ms']))
        )
          throw new Difference(`${where}: the decision of call ${id} is another one in the ledger, or none`)
        return
      }
      const row = call.get(id)
      if (row === null) {
        if (open.get(id) === null)
          throw new Difference(`${where}: ${kind} of call ${id}, which has no row and is not open`)
        return
      }
      if (kind === 'attempt' && attempt.get(id, String(fields['engine'])) === null)
        throw new Difference(
          `${where}: call ${id} was sent to ${String(fields['engine'])}, and the ledger does not say so`,
        )
      if (kind !== 'intent' && kind !== 'ending') return
      // Of several the first counts.
      if (met[kind].has(id)) return
      met[kind].add(id)
      compare(row, kind, fields, where)
    },
    /** A record that is not posted: its series has a position, or nothing of it is in the ledger. */
    waiting: (record: FrameRecord | undefined, unknown_series: boolean, name: string): void => {
      const id = record?.fields['call_id']
      if (unknown_series && typeof id === 'string' && call.get(id) !== null)
        throw new Difference(`journal ${name}: call ${id} has a row, and the ledger has no position of this series`)
    },
    finish: refused.finish,
  }
}

/** How a field of a record stands in the row: the column's name and what it holds; undefined where it does not matter. */
const INTENT = ['tenant', 'key_id', 'end_user', 'endpoint', 'stream', 'hold_nanodollars', 'at_ms', 'images']
const ENDING =
  'status finish_reason prompt_tokens cached_tokens completion_tokens reasoning_tokens audio_input_tokens audio_output_tokens attempts queue_ms engine_ms first_token_ms total_ms failure'.split(
    ' ',
  )
const ENDINGS = ['whole', 'cut_by_client', 'cut_by_engine', 'refused', 'recovered']
const SOURCES = ['engine', 'estimated']

const compare = (row: Row, kind: 'intent' | 'ending', fields: FrameRecord['fields'], where: string): void => {
  const expect = (column: string, want: string) => {
    if (String(row[column]) !== want)
      throw new Difference(
        `${where}: call ${String(row['id'])} has ${column} ${JSON.stringify(want)}, the ledger ${JSON.stringify(String(row[column]))}`,
      )
  }
  // Without its ending's process a call was settled by what was known, not by this record.
  if (kind === 'ending' && row['ending'] === 'recovered') return
  // A ledger that this version has not opened yet lacks the newest columns.
  for (const column of kind === 'intent' ? INTENT : ENDING) if (column in row) expect(column, stored(column, fields))
  const hash = kind === 'intent' ? 'request_sha256' : 'response_sha256'
  if (row['salt'] instanceof Uint8Array)
    if ((row[hash] as Uint8Array).toHex() !== sha256(Buffer.concat([row['salt'], fields[hash] as Buffer])).toHex())
      throw new Difference(`${where}: call ${String(row['id'])} has another ${hash} than its body and salt make`)
  // Rows of a version without fallbacks name the model once.
  const asks = row['asked_model'] ? 'asked_model' : 'model'
  if (kind === 'intent') return expect(asks, String(fields['model']))
  expect('ending', ENDINGS[Number(fields['ending'])] ?? '')
  expect('usage_source', SOURCES[Number(fields['usage_source'])] ?? '')
  for (const column of ['engine', 'engine_model']) if (fields[column] !== '') expect(column, String(fields[column]))
  expect('model', String(fields['serves'] || row[asks]))
}

const TOKENS_MAX = 1_000_000_000
const IMAGES_MAX = 1_000_000

// As the ledger says it bounds figures: whole, never negative, parts never more than their whole.
const stored = (column: string, fields: FrameRecord['fields']): string => {
  // What an older writer did not know is 0.
  const value = fields[column] ?? 0
  if (typeof value !== 'number') return String(value)
  const whole = (name: string, max = Number.MAX_SAFE_INTEGER) => {
    const figure = Number(fields[name])
    return figure > 0 ? Math.min(Math.round(figure), max) : 0
  }
  const rest = (all: string, part: string) => {
    const of = whole(all, TOKENS_MAX)
    return of - whole(part, of)
  }
  if (column === 'prompt_tokens' || column === 'completion_tokens') return String(whole(column, TOKENS_MAX))
  if (column === 'cached_tokens') return String(whole(column, whole('prompt_tokens', TOKENS_MAX)))
  if (column === 'reasoning_tokens') return String(whole(column, whole('completion_tokens', TOKENS_MAX)))
  if (column === 'audio_input_tokens') return String(whole(column, rest('prompt_tokens', 'cached_tokens')))
  if (column === 'audio_output_tokens') return String(whole(column, rest('completion_tokens', 'reasoning_tokens')))
  if (column === 'images') return String(whole(column, IMAGES_MAX))
  return String(whole(column, column === 'at_ms' ? 8.64e15 : Number.MAX_SAFE_INTEGER))
}
