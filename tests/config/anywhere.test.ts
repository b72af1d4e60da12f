import { Value } from '@sinclair/typebox/value'
import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { join, printFault } from '../../src/config/faults.ts'
import { loadConfig } from '../../src/config/load.ts'
import { Config } from '../../src/config/schema.ts'
import { type Shape, shapeOf } from '../../src/config/shape.ts'
import { withDefaults } from '../../src/config/validate.ts'
import { sample } from './sample.ts'

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

type Place = { readonly keys: readonly (string | number)[]; readonly path: string; readonly shape: Shape }

/** Every value of a tree that its schema describes, sections and entries included, with its path. */
const placesOf = (shape: Shape, value: unknown, keys: (string | number)[] = [], path = ''): Place[] => {
  const below: Place[] = []
  if (shape.items && Array.isArray(value)) {
    for (const [index, entry] of value.entries()) {
      below.push(...placesOf(shape.items, entry, [...keys, index], join(path, index)))
    }
  }
  for (const [key, field] of Object.entries(shape.properties ?? {})) {
    const entry = (value as Record<string, unknown>)[key]
    if (entry !== undefined) below.push(...placesOf(field, entry, [...keys, key], join(path, key)))
  }
  return keys.length === 0 ? below : [{ keys, path, shape }, ...below]
}

const places = placesOf(shapeOf(Config), sample())

/** The sample with the value at a place changed. */
const changed = (keys: readonly (string | number)[], change: (old: unknown) => unknown, tree: unknown = sample()) => {
  let at = tree as Record<string | number, unknown>
  for (const key of keys.slice(0, -1)) at = at[key] as Record<string | number, unknown>
  const last = keys.at(-1)!
  at[last] = change(at[last])
  return tree
}

const faultPaths = (tree: unknown): string[] => {
  const result = loadConfig({ text: JSON.stringify(tree), env: {} })
  return 'faults' in result ? result.faults.map((fault) => fault.path) : []
}

/** A value of a kind that the shape is not. */
const wrongKinds = (shape: Shape): unknown[] =>
  shape.properties || shape.items
    ? [7, 'text', true, shape.items ? {} : []]
    : [{}, [], ...(shape.type === 'boolean' ? ['yes'] : [true]), null]

const settings = (shape: Shape): number =>
  shape.items
    ? settings(shape.items)
    : Object.values(shape.properties ?? { leaf: {} }).reduce(
        (sum, field) => sum + (shape.properties ? settings(field) : 1),
        0,
      )

test('the sample writes every setting of the schema', () => {
  const leaves = places.filter(({ shape }) => !shape.properties && !shape.items)
  expect(new Set(leaves.map(({ path }) => path.replace(/\[\d+\]/g, '[]'))).size).toBe(settings(shapeOf(Config)))
  expect(faultPaths(sample())).toEqual([])
})

describe('a value of the wrong kind is a fault with that path, wherever it stands', () => {
  test.each(places.map((place) => [place.path, place] as const))('%s', (path, { keys, shape }) => {
    for (const wrong of wrongKinds(shape)) expect(faultPaths(changed(keys, () => wrong))).toContain(path)
  })
})

describe('an unknown key is a fault with that path, in every mapping', () => {
  const mappings = places.filter(({ shape }) => shape.properties)
  test.each(mappings.map((place) => [place.path, place] as const))('%s', (path, { keys }) => {
    for (const odd of ['zz', 'toString', '__proto__', 'a b']) {
      const tree = changed(keys, (old) => JSON.parse(JSON.stringify(old).replace('{', `{${JSON.stringify(odd)}:1,`)))
      expect(faultPaths(tree)).toEqual([join(path, odd)])
    }
  })
})

describe('a number beyond its range is a fault with that path', () => {
  const numbers = places.filter(({ shape }) => shape.maximum !== undefined)
  test.each(numbers.map((place) => [place.path, place] as const))('%s', (path, { keys, shape }) => {
    expect(faultPaths(changed(keys, () => shape.maximum! + 1))).toContain(path)
    expect(faultPaths(changed(keys, () => (shape.minimum ?? 1) - 1))).toContain(path)
  })
})

describe('a control character is a fault with that path, in every text', () => {
  const texts = places.filter(({ shape }) => shape.type === 'string')
  test.each(texts.map((place) => [place.path, place] as const))('%s', (path, { keys }) => {
    expect(faultPaths(changed(keys, (old) => `${old}\u0000x`))).toContain(path)
  })
})

describe('a missing variable is a fault with that path, in every text', () => {
  const texts = places.filter(({ shape }) => shape.type === 'string')
  test.each(texts.map((place) => [place.path, place] as const))('%s', (path, { keys }) => {
    expect(faultPaths(changed(keys, () => '${MISSING}'))).toContain(path)
  })
})

/** Numbers from 0 to below 1, the same for the same seed. */
const randomFrom = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const seed = Number(process.env['TEST_SEED'] ?? 20_261)

test(`several faults anywhere are all told (seed ${seed})`, () => {
  const random = randomFrom(seed)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!
  const leaves = places.filter(({ shape }) => !shape.properties && !shape.items)
  for (let round = 0; round < 300; round++) {
    const chosen = new Set(Array.from({ length: 1 + Math.floor(random() * 6) }, () => pick(leaves)))
    const tree = sample()
    for (const { keys, shape } of chosen) changed(keys, () => pick(wrongKinds(shape)), tree)
    expect(faultPaths(tree)).toEqual(expect.arrayContaining([...chosen].map(({ path }) => path)))
  }
})

test(`what the schema refuses is explained, what it takes is not (seed ${seed})`, () => {
  const random = randomFrom(seed + 1)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!
  const values = [
    null,
    true,
    0,
    1,
    -1,
    0.5,
    1e12,
    '',
    'a',
    'a b',
    '1',
    'auto',
    'UTC',
    'http://h',
    [],
    {},
    ['a'],
    [{}],
    { name: 'a' },
  ]
  for (let round = 0; round < 1_000; round++) {
    const { keys } = pick(places)
    const tree = changed(keys, () => pick(values))
    const result = loadConfig({ text: JSON.stringify(tree), env: {} })
    if ('config' in result) expect(Value.Check(Config, result.config)).toBe(true)
    else for (const fault of result.faults) expect(printFault(fault)).toMatch(/^\S.*: \S.*; \S/)
  }
})

test('the defaults are those that TypeBox fills in', () => {
  const bare = { engines: [{ name: 'e', url: 'http://h' }], tenants: [{ name: 't', budgets: [{ usd: '1' }] }] }
  expect(withDefaults(bare)).toEqual(Value.Default(Config, structuredClone(bare)))
  expect(withDefaults({})).toEqual(Value.Default(Config, {}))
  expect(Value.Check(Config, Value.Default(Config, {}))).toBe(true)
})
