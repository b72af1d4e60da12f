import { describe, expect, test } from 'bun:test'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { consistencyFault, inclusionFault } from '../../src/audit/verify.ts'

/** Probe files of a Certificate Transparency proof library: most are broken on purpose, and `wantErr` says which. */
const folder = join(import.meta.dir, '../../../shared/golden/merkle/testdata')
const here = existsSync(folder)
const files = (kind: string): string[] =>
  here
    ? readdirSync(join(folder, kind), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.json'))
    : []

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'))
const nodes = (proof: string[] | null): Uint8Array[] => (proof ?? []).map(bytes)

type Inclusion = {
  leafIdx: number
  treeSize: number
  root: string
  leafHash: string
  proof: string[] | null
  wantErr: boolean
}
type Consistency = {
  size1: number
  size2: number
  root1: string
  root2: string
  proof: string[] | null
  wantErr: boolean
}

describe.skipIf(!here)('golden Merkle proofs', () => {
  test('the probes are all there', () => {
    expect([files('inclusion').length, files('consistency').length]).toEqual([98, 98])
  })

  test.each(files('inclusion'))('inclusion/%s', async (name) => {
    const probe = (await Bun.file(join(folder, 'inclusion', name)).json()) as Inclusion
    const fault = inclusionFault({
      index: probe.leafIdx,
      size: probe.treeSize,
      leaf_hash: bytes(probe.leafHash),
      root: bytes(probe.root),
      proof: nodes(probe.proof),
    })
    expect({ refused: fault !== undefined }).toEqual({ refused: probe.wantErr })
  })

  test.each(files('consistency'))('consistency/%s', async (name) => {
    const probe = (await Bun.file(join(folder, 'consistency', name)).json()) as Consistency
    const fault = consistencyFault({
      from: probe.size1,
      to: probe.size2,
      from_root: bytes(probe.root1),
      to_root: bytes(probe.root2),
      proof: nodes(probe.proof),
    })
    expect({ refused: fault !== undefined }).toEqual({ refused: probe.wantErr })
  })
})
