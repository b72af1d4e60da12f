import { describe, expect, test } from 'bun:test'
import { FaultList, printFault } from '../../src/config/faults.ts'
import { interpolate, referencedNames, variable } from '../../src/config/interpolate.ts'

const env = {
  K: 'sk-a$b',
  ESCAPED: 'a$$b',
  NESTED: '${K}',
  EMPTY: '',
  BLANK: ' \r\n\t',
  FILE: '\tsk-from-file\r\n',
  INNER: 'two words\n',
  _x9: 'under',
}

const run = (tree: unknown) => {
  const faults = new FaultList()
  return { ...interpolate(tree, env, faults), faults: faults.all().map(printFault) }
}

const missing = (path: string, name = 'MISSING') =>
  `${path}: the variable ${name} is not set; set it, or write \${${name}:-default}`
const broken = 'x: holds a ${ that begins no reference; allowed: ${NAME}, ${NAME:-default}, and $$ for a literal $'

describe('a text', () => {
  test.each([
    // text               result             why
    ['${K}', 'sk-a$b', 'a $ in a value stays'],
    ['${ESCAPED}', 'a$$b', 'an escape in a value stays'],
    ['${NESTED}', '${K}', 'a reference in a value stays'],
    ['a${K}b${_x9}c', 'ask-a$bbunderc', 'within text, more than one'],
    ['${FILE}', 'sk-from-file', 'CR, LF and blanks at both ends go'],
    ['${INNER}', 'two words', 'blanks inside stay'],
    ['${MISSING:-x}', 'x', 'default of an unset variable'],
    ['${EMPTY:-x}', 'x', 'default of an empty variable'],
    ['${BLANK:-x}', 'x', 'default of a blank variable'],
    ['${K:-x}', 'sk-a$b', 'a set variable beats the default'],
    ['${MISSING:-}', '', 'an empty default'],
    ['${MISSING:-a:-b $K $$ c}', 'a:-b $K $$ c', 'a default is taken as it stands'],
    ['${EMPTY}', '', 'empty on purpose is no fault here'],
    ['$$', '$', 'escape'],
    ['$$$$', '$$', 'two escapes'],
    ['$${K}', '${K}', 'an escaped reference'],
    ['$$${K}', '$sk-a$b', 'an escape before a reference'],
    ['$K ^a$ 5$', '$K ^a$ 5$', 'any other $ is a $'],
    ['', '', 'nothing'],
  ])('%p → %p (%s)', (text, result) => {
    expect(run({ x: text })).toMatchObject({ value: { x: result }, faults: [] })
  })

  test.each([
    ['${MISSING}', missing('x')],
    ['a ${MISSING} b', missing('x')],
    ['${K', broken],
    ['${}', broken],
    ['${1K}', broken],
    ['${K-x}', broken],
    ['${ K }', broken],
    ['${K:-${NESTED}}', broken],
    ['${toString}', missing('x', 'toString')],
  ])('%p is a fault', (text, line) => {
    expect(run({ x: text }).faults).toContain(line)
  })

  test('two missing variables are two faults', () => {
    expect(run({ x: '${MISSING}${OTHER}' }).faults).toEqual([missing('x'), missing('x', 'OTHER')])
  })
})

test('strings at any depth are replaced, keys and other values are not', () => {
  const tree = { a: [1, [{ b: '${K}', '${K}': true }], null], c: 2.5 }
  const result = run(tree)
  expect(result.value).toEqual({ a: [1, [{ b: 'sk-a$b', '${K}': true }], null], c: 2.5 })
  expect([...result.templates]).toEqual([['a[1][0].b', '${K}']])
  expect(tree.a[1]).toEqual([{ b: '${K}', '${K}': true }])
})

test('a fault names its path at any depth', () => {
  expect(run({ a: [1, { 'odd key': ['${MISSING}'] }] }).faults).toEqual([missing('a[1]["odd key"][0]')])
})

test('a key named __proto__ stays a key', () => {
  const value = run(JSON.parse('{"__proto__":{"x":"${K}"}}')).value as object
  expect(Object.keys(value)).toEqual(['__proto__'])
  expect('x' in value).toBe(false)
})

test.each([
  [32, 0],
  [33, 1],
])('%i levels give %i faults', (levels, count) => {
  let tree: unknown = 'leaf'
  for (let level = 0; level < levels; level++) tree = [tree]
  expect(run(tree).faults).toHaveLength(count)
})

test('the names a text refers to, without the escaped ones', () => {
  expect([...referencedNames('a: ${A}\nb: ["${B:-x}", $${C}, $D]')]).toEqual(['A', 'B'])
})

test.each([
  ['FILE', 'sk-from-file'],
  ['BLANK', undefined],
  ['EMPTY', undefined],
  ['MISSING', undefined],
  ['toString', undefined],
])('variable %s is %p', (name, value) => {
  expect(variable(env, name)).toBe(value)
})
