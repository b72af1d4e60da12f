import { expect, test } from 'bun:test'
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Failure } from '../../src/base/failure.ts'
import { forgettable, tidyJournal } from '../../src/ledger/journal-tidy.ts'
import { tempFolder } from '../kit/wait.ts'

const at = (series: string, finished: boolean, segment = 3) => ({ series, segment, offset: 64, finished })

test.each([
  ['without files, but the youngest', [at('w00-000001', true)], [], []],
  ['without files, and not the youngest', [at('w00-000001', true), at('w00-000002', true)], [], ['w00-000001']],
  ['with files', [at('w00-000001', true), at('w00-000002', true)], ['w00-000001'], []],
  ['not finished', [at('w00-000001', false), at('w00-000002', true)], [], []],
  ['of another worker', [at('w00-000001', true), at('w01-000002', true)], [], []],
  ['in any order', [at('w00-000010', true), at('w00-000009', true)], [], ['w00-000009']],
] as const)('series %s: forgotten or not', (_why, positions, with_files, want) =>
  expect(forgettable(positions, new Set(with_files))).toEqual([...want]),
)

test('what is posted goes, what is not stays', () => {
  using folder = tempFolder()
  const names = ['w00-000001-000000', 'w00-000002-000002', 'w00-000002-000003', 'w01-000003-000000']
  for (const name of names) writeFileSync(join(folder.path, `${name}.journal`), '')
  const positions = [at('w00-000001', true), at('w00-000002', false)]
  expect(tidyJournal({ folder: folder.path, positions, keep_ms: 0 })).toEqual(['w00-000001'])
  expect(readdirSync(folder.path).toSorted()).toEqual(['w00-000002-000003.journal', 'w01-000003-000000.journal'])
})

test('a folder that cannot be read is a failure', () =>
  expect(tidyJournal({ folder: '/nowhere/at/all', positions: [], keep_ms: 0 })).toBeInstanceOf(Failure))
