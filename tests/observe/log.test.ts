import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { openLog } from '../../src/observe/log.ts'

const lineOf = (pretty: boolean, fields: object): string => {
  const lines: string[] = []
  openLog('auditor', pretty, (line) => void lines.push(line))('warn', 'log_not_followed', { ...fields })
  expect(lines).toHaveLength(1)
  return lines[0]!
}
const failure = new Failure('internal', { says: 'no leaves.', cause: new Error('no row for leaf 7') })

test.each([false, true])('why a failure came about is told, however deep it is (pretty: %p)', (pretty) => {
  const line = lineOf(pretty, { cause: failure })
  expect(line).toContain('no leaves.')
  expect(line).toContain('no row for leaf 7')
  expect(line.endsWith('\n')).toBe(true)
})

test.each([false, true])(
  'amounts are told as they are, long texts cut once, with their length (pretty: %p)',
  (pretty) => {
    const line = lineOf(pretty, {
      usd: 2n ** 60n,
      within: { usd: 3n },
      text: 'x'.repeat(5_000),
      deep: ['y'.repeat(5_000)],
    })
    for (const part of ['1152921504606846976', '3', 'x… (5000 characters)', 'y… (5000 characters)'])
      expect(line).toContain(part)
    expect(line.length).toBeLessThan(5_000)
  },
)

test('a line is JSON with time, level, process, event and the fields', () => {
  const { at, ...rest } = JSON.parse(lineOf(false, { count: 3, names: ['a'] }))
  expect(Number.isNaN(Date.parse(at))).toBe(false)
  expect(rest).toEqual({ level: 'warn', process: 'auditor', event: 'log_not_followed', count: 3, names: ['a'] })
})
