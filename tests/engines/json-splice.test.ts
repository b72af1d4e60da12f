import { describe, expect, test } from 'bun:test'

import { Failure } from '../../src/base/failure.ts'
import { jsonScanner } from '../../src/engines/json-scan.ts'
import {
  addMembers,
  type Edit,
  removeMember,
  replaceValue,
  setMember,
  setNested,
  splice,
} from '../../src/engines/json-splice.ts'
import { forAll } from './for-all.ts'
import { madeKeys, madeObject, madeValue, space } from './json-made.ts'

const scan = jsonScanner(['model', 'n', 'stream_options', 'stream_options.include_usage'])
const NESTED = ['stream_options', 'include_usage'] as const

const scanned = (text: string) => {
  const bytes = Buffer.from(text)
  const result = scan(bytes)
  if (result instanceof Failure) throw new Error(`${result.detail.says}: ${text}`)
  return { bytes, ...result }
}
const apply = (bytes: Uint8Array, ...edits: (Edit | Failure)[]): string => {
  const sound = edits.map((edit) => {
    if (edit instanceof Failure) throw new Error(edit.detail.says)
    return edit
  })
  return Buffer.concat(splice(bytes, sound)).toString()
}
const includeUsage = (text: string): string | Failure => {
  const { bytes, root, values } = scanned(text)
  const edit = setNested(bytes, root, NESTED, values.stream_options, values['stream_options.include_usage'], 'true')
  return edit instanceof Failure ? edit : apply(bytes, edit)
}

describe('splice', () => {
  const bytes = Buffer.from('0123456789')
  const edit = (start: number, end: number, text: string): Edit => ({ start, end, with: Buffer.from(text) })
  test.each([
    [[], '0123456789'],
    [[edit(3, 5, 'ab')], '012ab56789'],
    [[edit(5, 6, 'y'), edit(0, 1, 'x')], 'x1234y6789'],
    [[edit(2, 2, 'a'), edit(2, 2, 'b'), edit(2, 3, 'c')], '01abc3456789'],
    [[edit(0, 10, '')], ''],
    [[edit(10, 10, 'z')], '0123456789z'],
    [[edit(0, 3, '')], '3456789'],
  ])('%j', (edits, result) => expect(Buffer.concat(splice(bytes, edits)).toString()).toBe(result))

  test('untouched parts are views, not copies', () => {
    const pieces = splice(bytes, [edit(3, 4, 'x')])
    expect(pieces.map((piece) => piece.length)).toEqual([3, 1, 6])
    expect(pieces[0]!.buffer).toBe(bytes.buffer)
    expect(pieces[2]!.byteOffset).toBe(bytes.byteOffset + 4)
    expect(splice(bytes, [])[0]).toBe(bytes)
  })

  test.each([[[edit(3, 5, ''), edit(4, 6, '')]], [[edit(5, 3, '')]], [[edit(9, 11, '')]], [[edit(-1, 1, '')]]])(
    'an impossible list is a bug: %j',
    (edits) => expect(() => splice(bytes, edits)).toThrow('splice'),
  )
})

describe('makers', () => {
  test.each([
    ['{}', 'end', '{"k":1,"l":[]}'],
    ['{}', 'start', '{"k":1,"l":[]}'],
    ['{ \n}', 'end', '{"k":1,"l":[] \n}'],
    ['{"a":1}', 'end', '{"a":1,"k":1,"l":[]}'],
    ['{"a":1}', 'start', '{"k":1,"l":[],"a":1}'],
    ['{ "a" : {} \t}', 'end', '{ "a" : {},"k":1,"l":[] \t}'],
    ['{ "a" : "}" }', 'start', '{"k":1,"l":[], "a" : "}" }'],
  ] as const)('add to %j at its %s', (text, where, result) => {
    const { bytes, root } = scanned(text)
    expect(
      apply(
        bytes,
        addMembers(
          bytes,
          root,
          [
            ['k', '1'],
            ['l', '[]'],
          ],
          where,
        ),
      ),
    ).toBe(result)
    expect(apply(bytes, addMembers(bytes, root, [], where))).toBe(text)
  })

  test('keys are escaped', () => {
    const { bytes, root } = scanned('{}')
    expect(apply(bytes, addMembers(bytes, root, [['a"\n', '1']]))).toBe('{"a\\"\\n":1}')
  })

  test.each([
    ['{}', '{"stream_options":{"include_usage":true}}'],
    ['{"n":1}', '{"n":1,"stream_options":{"include_usage":true}}'],
    ['{"stream_options":null,"n":1}', '{"stream_options":{"include_usage":true},"n":1}'],
    ['{"stream_options":{}}', '{"stream_options":{"include_usage":true}}'],
    ['{"stream_options": { } }', '{"stream_options": {"include_usage":true } }'],
    ['{"stream_options":{"x":1}}', '{"stream_options":{"x":1,"include_usage":true}}'],
    ['{"stream_options":{"include_usage":false,"x":1}}', '{"stream_options":{"include_usage":true,"x":1}}'],
    ['{"stream_options":{"include_usage" : null}}', '{"stream_options":{"include_usage" : true}}'],
    ['{"str\\u0065am_options":{"include\\u005fusage":0}}', '{"str\\u0065am_options":{"include\\u005fusage":true}}'],
    ['\ufeff{"n":1}', '\ufeff{"n":1,"stream_options":{"include_usage":true}}'],
  ])('include_usage in %j', (text, result) => expect(includeUsage(text)).toBe(result))

  test.each(['1', '"x"', '[]', 'true', 'false'])('stream_options: %s is refused', (value) => {
    const failure = includeUsage(`{"stream_options":${value}}`) as Failure
    expect([failure.code, failure.detail.param]).toEqual(['field_invalid', 'stream_options'])
  })

  test.each([
    ['{"n":1}', '{}'],
    ['{ "n" : 1 }', '{  }'],
    ['{"n":1,"a":2}', '{"a":2}'],
    ['{"a":2,"n":1}', '{"a":2}'],
    ['{"a":2 , "n" : 1 }', '{"a":2  }'],
    ['{"a":2,\n "n":1 , "b":3}', '{"a":2,\n "b":3}'],
    ['[{"n":1}]', undefined],
  ])('remove n from %j', (text, result) => {
    const { bytes, values } = scanned(text)
    expect(values.n && apply(bytes, removeMember(bytes, values.n))).toBe(result)
  })
})

describe('made documents', () => {
  test('edit then parse is parse then edit, and nothing else changes', () => {
    forAll(2000, (roll) => {
      const options = [undefined, 'null', '{}', '{ }', '{"x": 1.0 }', '{"include_usage" : 9007199254740993}'][roll(6)]
      const keys = [...madeKeys(roll), ...(roll(3) > 0 ? ['"model"'] : [])]
      let text = madeObject(roll, keys)
      if (options !== undefined) {
        const member = `"stream_options"${space(roll)}:${space(roll)}${options}`
        text = `{${space(roll)}${member}${keys.length > 0 ? ',' : ''}${text.slice(1)}`
      }
      text = space(roll) + text + space(roll)
      const { bytes, root, values } = scanned(Buffer.from(text).toString())
      const model = JSON.stringify(`m-${roll(1000)}`)
      const extra = madeValue(roll)
      const usage = setNested(
        bytes,
        root,
        NESTED,
        values.stream_options,
        values['stream_options.include_usage'],
        'true',
      )
      const edits = [setMember(bytes, root, 'model', values.model, model), usage as Edit]
      // Two additions to an empty object must be one edit.
      const object_empty = Object.keys(JSON.parse(text)).length === 0
      const some = object_empty ? [edits[0]!] : edits
      if (!object_empty) some.push(addMembers(bytes, root, [['zz', extra]], roll(2) === 0 ? 'start' : 'end'))

      const want = JSON.parse(text)
      want.model = JSON.parse(model)
      if (!object_empty) {
        want.stream_options = { ...want.stream_options, include_usage: true }
        want.zz = JSON.parse(extra)
      }
      const pieces = splice(bytes, some)
      expect(JSON.parse(Buffer.concat(pieces).toString())).toEqual(want)
      // Taking the inserted pieces away and putting the replaced ones back gives every byte of the original.
      let at = 0
      let kept = ''
      for (const one of some.toSorted((a, b) => a.start - b.start)) {
        kept += bytes.toString('latin1', at, one.start) + bytes.toString('latin1', one.start, one.end)
        at = one.end
      }
      expect(kept + bytes.toString('latin1', at)).toBe(bytes.toString('latin1'))
      const untouched = pieces.filter((piece) => !some.some((one) => one.with === piece))
      for (const piece of untouched) expect(piece.buffer).toBe(bytes.buffer)
      const removed = some.reduce((sum, one) => sum + one.end - one.start, 0)
      expect(untouched.reduce((sum, piece) => sum + piece.length, 0)).toBe(bytes.length - removed)
    })
  })

  test('removing a member leaves the others as they were', () => {
    forAll(1000, (roll) => {
      const keys = [...madeKeys(roll), '"n"'].toSorted(() => roll(3) - 1)
      const text = Buffer.from(madeObject(roll, keys)).toString()
      const { bytes, values } = scanned(text)
      const want = JSON.parse(text)
      delete want.n
      expect(JSON.parse(apply(bytes, removeMember(bytes, values.n!)))).toEqual(want)
    })
  })

  test('replaced values: any value by any other', () => {
    forAll(300, (roll) => {
      const text = `{"n":${space(roll)}${madeValue(roll)}${space(roll)}}`
      const { bytes, values } = scanned(Buffer.from(text).toString())
      const other = Buffer.from(madeValue(roll)).toString()
      expect(JSON.parse(apply(bytes, replaceValue(values.n!, other)))).toEqual({ n: JSON.parse(other) })
    })
  })
})
