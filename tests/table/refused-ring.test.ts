import { expect, test } from 'bun:test'
import { tempFolder } from '../kit/wait.ts'
import { REFUSED_AT, REFUSED_SLOTS } from '../../src/table/layout.ts'
import { findRefused, keepRefused } from '../../src/table/refused-ring.ts'
import { createTable } from '../../src/table/table.ts'

test('a slot whose writer was killed is used again', () => {
  using folder = tempFolder('weir-ring')
  const table = createTable(`${folder.path}/table`, 8, 0)
  expect(keepRefused(table, 'before')).toBe(true)
  Atomics.add(table.i32, REFUSED_AT / 4, 1)
  expect(findRefused(table, 'before')).toBeUndefined()
  for (let turn = 1; turn <= REFUSED_SLOTS; turn++) keepRefused(table, `after ${turn};`)
  for (let turn = 1; turn <= REFUSED_SLOTS; turn++) expect(findRefused(table, `after ${turn};`)).toBe(`after ${turn};`)
})
