import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { FAILURES } from '../../src/base/failure.ts'
import { configTable } from '../../src/config/docs.ts'

/** The parts of the README that follow from the code. `bun tests/kit/readme.ts` writes them; a test compares. */

const README = join(import.meta.dir, '../../README.md')

const failureTable = (): string =>
  [
    '| code | status | type | retry | says |',
    '|---|---|---|---|---|',
    ...Object.entries(FAILURES).map(
      ([code, { status, type, retry, says }]) => `| \`${code}\` | ${status} | ${type} | ${retry} | ${says} |`,
    ),
  ].join('\n')

const PARTS: Readonly<Record<string, () => string>> = { settings: configTable, failures: failureTable }

/** A README with every part as the code has it. */
export const completed = (text: string): string =>
  Object.entries(PARTS).reduce((whole, [name, part]) => {
    const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`]
    const [before, rest] = whole.split(begin)
    const after = rest?.split(end)[1]
    if (after === undefined) throw new Error(`README.md has no part ${name}`)
    return `${before}${begin}\n\n${part()}\n\n${end}${after}`
  }, text)

export const readme = (): string => readFileSync(README, 'utf8')

if (import.meta.main) writeFileSync(README, completed(readme()))
