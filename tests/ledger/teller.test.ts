import { expect, test } from 'bun:test'
import { teller } from '../../src/ledger/teller.ts'

test('a trouble is said once, and again after a minute or after another one', () => {
  const said: string[] = []
  let now_ms = 1_000_000
  const tell = teller(
    (_level, event, fields) => void said.push(`${event} ${String(fields?.['cause'])}`),
    () => now_ms,
  )
  for (const [after_ms, event, cause, times] of [
    [0, 'not_written', 'disk full', 1],
    [150, 'not_written', 'disk full', 1],
    [59_800, 'not_written', 'disk full', 1],
    [150, 'not_written', 'disk full', 2],
    [150, 'not_written', 'disk full', 2],
    [150, 'not_written', 'locked', 3],
    [150, 'not_signed', 'locked', 4],
    [3_600_000, 'not_signed', 'locked', 5],
  ] as const) {
    now_ms += after_ms
    tell(event, cause)
    expect(said).toHaveLength(times)
  }
  expect(said.at(-1)).toBe('not_signed locked')
})
