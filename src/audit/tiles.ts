import type { BlobStore } from './blob-store.ts'
import { HASH_BYTES } from './hash.ts'
import type { NodeSource } from './proof.ts'

/**
 * The static layout of a log (C2SP tlog-tiles). A tile is 256 hashes of one level in eight, or fewer at the right edge; an
 * entry bundle is the leaves under a tile of level 0, each behind its length in two bytes, big endian.
 */
export type Tile = {
  readonly kind: 'hashes' | 'entries'
  /** In tiles: hash i of level l is the root of the leaves [i · 256^l, (i + 1) · 256^l). Entries have level 0. */
  readonly level: number
  readonly index: number
  /** 1 to 256; 256 is a full tile. */
  readonly width: number
}

/** Entries of a full tile. */
export const TILE_WIDTH = 256

/** The path of a tile below the log's address, such as `tile/0/x001/x234/067.p/8` or `tile/entries/000`. */
export const tilePath = ({ kind, level, index, width }: Tile): string => {
  const digits = String(index)
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, '0').match(/.{3}/g) ?? []
  const name = groups.map((group, at) => (at + 1 < groups.length ? `x${group}` : group)).join('/')
  return `tile/${kind === 'entries' ? 'entries' : level}/${name}${width < TILE_WIDTH ? `.p/${width}` : ''}`
}

/** Reads a tile's path; undefined unless it is the one way to write it. */
export const parseTilePath = (path: string): Tile | undefined => {
  const found = /^tile\/(entries|\d{1,2})\/((?:x\d{3}\/){0,5}\d{3})(?:\.p\/(\d{1,3}))?$/.exec(path)
  if (!found) return undefined
  const kind = found[1] === 'entries' ? 'entries' : 'hashes'
  const tile: Tile = {
    kind,
    level: kind === 'entries' ? 0 : Number(found[1]),
    index: Number(found[2]!.replaceAll(/[x/]/g, '')),
    width: found[3] === undefined ? TILE_WIDTH : Number(found[3]),
  }
  return tile.level <= 63 && tile.width >= 1 && tilePath(tile) === path ? tile : undefined
}

/** The tiles of one level at a size, full ones first: how many are full, and the width of the partial one after them (0: none). */
export const tilesAt = (size: number, level: number): { full: number; partial: number } => {
  const hashes = Math.floor(size / TILE_WIDTH ** level)
  return { full: Math.floor(hashes / TILE_WIDTH), partial: hashes % TILE_WIDTH }
}

/** The bytes of a tile of a log of `size` leaves; undefined where that log does not have it. */
export const readTile = (
  { nodes, leaves }: { readonly nodes: NodeSource; readonly leaves: Pick<BlobStore, 'read'> },
  tile: Tile,
  size: number,
): Uint8Array | undefined => {
  const first = tile.index * TILE_WIDTH
  if (tile.width < 1 || tile.width > TILE_WIDTH) return undefined
  if (first + tile.width > Math.floor(size / TILE_WIDTH ** tile.level)) return undefined
  if (tile.kind === 'entries') return bundle(Array.from({ length: tile.width }, (_, at) => leaves.read(first + at)))
  const bytes = new Uint8Array(tile.width * HASH_BYTES)
  for (let at = 0; at < tile.width; at++) nodes.read(8 * tile.level, first + at, bytes, at * HASH_BYTES)
  return bytes
}

const bundle = (leaves: readonly Uint8Array[]): Uint8Array => {
  const bytes = new Uint8Array(leaves.reduce((sum, leaf) => sum + 2 + leaf.byteLength, 0))
  const view = new DataView(bytes.buffer)
  let at = 0
  for (const leaf of leaves) {
    view.setUint16(at, leaf.byteLength)
    bytes.set(leaf, at + 2)
    at += 2 + leaf.byteLength
  }
  return bytes
}
