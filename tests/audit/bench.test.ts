import { expect, setDefaultTimeout, test } from 'bun:test'
import { merkleBench } from '../../bench/merkle.ts'
import { pureSha256 } from '../../bench/sha256.ts'
import { sha256 } from '../../src/audit/hash.ts'

setDefaultTimeout(60_000)

test('the plain SHA-256 of the bench is SHA-256 at every length around its blocks', () => {
  const out = new Uint8Array(32)
  for (let bytes = 0; bytes < 260; bytes++) {
    const input = Uint8Array.from({ length: bytes }, (_, at) => (at * 31 + bytes) % 256)
    pureSha256(input, bytes, out)
    expect(out.toHex()).toBe(sha256(input).toHex())
  }
})

test('the bench runs whole at a small size, and both ways reach the same roots', async () => {
  const { figures } = await merkleBench({ runs: 1, rate_leaves: 1_000, history_leaves: 10_000 })
  const names = [
    'leaves_per_s',
    'rows_per_s',
    'ratio_100',
    'ratio_1k',
    'pure_leaves_per_s',
    'proof_us_10m',
    'open_ms_10m',
  ]
  for (const name of names) expect(figures[name]!.value).toBeGreaterThan(0)
})
