import type { Transform } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'
import { Failure } from '../base/failure.ts'
import { bodyTooLarge } from './body-limit.ts'

type Open = (options: { readonly chunkSize: number }) => Transform

/** The content codings of a request body that are undone (RFC 9110 §8.4.1, RFC 8878 for zstd). */
const OPENERS: ReadonlyMap<string, Open> = new Map<string, Open>([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
  ['zstd', createZstdDecompress],
])

const ACCEPTED = [...OPENERS.keys()].join(', ')

/** Undoes a coding: the bytes, or `body_too_large` as soon as they exceed the limit, or `encoding_invalid`. */
export type Decode = (packed: Uint8Array, bytes_max: number) => Promise<Uint8Array | Failure>

/** How to undo a Content-Encoding; undefined where there is nothing to undo. */
export const decoderOf = (encoding: string | null): Decode | Failure | undefined => {
  if (encoding === null) return undefined
  const name = encoding.toLowerCase()
  if (name === 'identity') return undefined
  const open = OPENERS.get(name)
  if (open === undefined)
    return new Failure('encoding_unsupported', {
      says: `Content-Encoding ${JSON.stringify(name.slice(0, 32))} is not supported; accepted: ${ACCEPTED}.`,
      param: 'content-encoding',
      headers: { 'accept-encoding': ACCEPTED },
    })
  return (packed, bytes_max) => unpack(open, name, packed, bytes_max)
}

const unpack = (open: Open, name: string, packed: Uint8Array, bytes_max: number): Promise<Uint8Array | Failure> => {
  const { promise, resolve } = Promise.withResolvers<Uint8Array | Failure>()
  // About as large as the body, or a large one takes thousands of turns to a thread and back.
  const stream = open({ chunkSize: Math.min(Math.max(4 * packed.length, 16_384), 262_144) })
  const pieces: Buffer[] = []
  let size = 0
  stream.on('data', (piece: Buffer) => {
    pieces.push(piece)
    size += piece.length
    if (size <= bytes_max) return
    stream.destroy()
    release(pieces)
    resolve(bodyTooLarge(bytes_max))
  })
  stream.on('error', (cause) => {
    release(pieces)
    resolve(new Failure('encoding_invalid', { says: `The request body is not valid ${name}.`, cause }))
  })
  stream.on('end', () => {
    const whole = Buffer.concat(pieces, size)
    release(pieces)
    resolve(whole)
  })
  stream.end(packed)
  return promise
}

/**
 * Gives the memory of pieces back at once: left to the collector, ten refused bombs held 300 MB. Only a piece that is the
 * whole of its buffer goes, which nothing else can be looking at.
 */
const release = (pieces: Buffer[]): void => {
  for (const { buffer, byteLength } of pieces)
    if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0)
  pieces.length = 0
}
