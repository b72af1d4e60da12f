import { Glob } from 'bun'
import { describe, expect, test } from 'bun:test'
import { dirname, join, normalize } from 'node:path'

/** The rules of the house, each a function of a file's path and text, with samples of its own that must fail. */

const ROOT = join(import.meta.dir, '..')

/** From the roof down: an import may only point to a later name, or into the same folder. */
const FLOORS = [
  'main.ts',
  'cluster',
  'http',
  'admin',
  'dashboard',
  'jobs',
  'pipeline',
  'balance',
  'engines',
  'guard',
  'retrieval',
  'quota',
  'ledger',
  'audit',
  'journal',
  'observe',
  'table',
  'config',
  'base',
]

const LINES_MAX = 250
const FUNCTION_LINES_MAX = 70

/** Calls that have one home, and where that is. */
const BANNED: readonly (readonly [pattern: RegExp, instead: string, home: RegExp])[] = [
  [/\bDate\.now\(/, 'nowMs of base/clock.ts', /^src\/base\/clock\.ts$/],
  [/\bnew Date\(\)/, 'nowMs of base/clock.ts', /^src\/base\/clock\.ts$/],
  [/\bMath\.random\b/, 'a random function handed in', /^src\/(cluster\/worker\.ts|engines\/demo\/)/],
  [/\bprocess\.env\b/, 'the configuration', /^src\/main\.ts$/],
  [/\bconsole\./, 'the log of observe/log.ts', /^$/],
  [/\bas any\b/, 'a type', /^$/],
  [/: any\b(?! \?)/, 'a type', /^$/],
  [/@ts-(ignore|expect-error|nocheck)/, 'a type', /^$/],
  [/\b(FIXME|TODO|XXX)\b/, 'the work itself', /^$/],
  [/\btransaction\(\s*async/, 'a synchronous transaction: an async one commits at its first await', /^$/],
  [/\benum \w+ \{/, 'a union of literals', /^$/],
  [/\bsetInterval\([^]*?Bun\.sleepSync/, 'no blocking sleep', /^$/],
  [/\bfrom 'elysia'/, 'Elysia stays in http/ and admin/', /^src\/(http|admin)\//],
  [/\bexport default\b/, 'a named export', /^src\/.*config\.ts$/],
  [/catch(\s*\([^)]*\))?\s*\{\s*\}/, 'a catch that says why', /^$/],
]

/** Everything in comments and strings is not code. Good enough for these rules; not a parser. */
const code = (text: string): string =>
  text.replace(/\/\*[\s\S]*?\*\/|(?<![:\w])\/\/[^\n]*/g, (comment) => comment.replace(/[^\n]/g, ' '))

const importsOf = (text: string): string[] =>
  [...code(text).matchAll(/\b(?:from|import)\s*\(?\s*'([^']+)'/g)].map((found) => found[1]!)

const resolved = (path: string, to: string): string => normalize(join(dirname(path), to))
const floorOf = (path: string): string => path.split('/')[1]!

const upward = (path: string, text: string): string[] =>
  importsOf(text)
    .filter((to) => to.startsWith('.'))
    .map((to) => resolved(path, to))
    .filter((to) => to.startsWith('src/') && floorOf(to) !== floorOf(path))
    .filter((to) => FLOORS.indexOf(floorOf(to)) <= FLOORS.indexOf(floorOf(path)) || !FLOORS.includes(floorOf(path)))

const banned = (path: string, text: string): string[] =>
  BANNED.filter(([pattern, , home]) => !home.test(path) && pattern.test(code(text))).map(
    ([pattern, instead]) => `${pattern.source}: use ${instead}`,
  )

const tooLong = (text: string): string[] => {
  const lines = text.trimEnd().split('\n').length
  return lines > LINES_MAX ? [`${lines} lines, at most ${LINES_MAX}`] : []
}

/** Functions by their braces: a line that opens one and is closed at the same indentation. */
const longFunctions = (text: string): string[] => {
  const lines = text.split('\n')
  const found: string[] = []
  lines.forEach((line, at) => {
    const opens =
      /^(\s*)(?:export )?(?:async )?(?:const \w+.*=>|(?:static )?(?:async )?[#\w]+\(.*\).*|function .*) \{$/.exec(line)
    if (!opens || /^\s*(if|for|while|switch|return|\}|else)\b/.test(line)) return
    const close = lines.findIndex((other, index) => index > at && new RegExp(`^${opens[1]}\\}`).test(other))
    if (close - at + 1 > FUNCTION_LINES_MAX)
      found.push(`line ${at + 1}: ${close - at + 1} lines, at most ${FUNCTION_LINES_MAX}`)
  })
  return found
}

const cycles = (graph: ReadonlyMap<string, readonly string[]>): string[] => {
  const state = new Map<string, 'open' | 'done'>()
  const found: string[] = []
  const visit = (file: string, way: readonly string[]): void => {
    if (state.get(file) === 'done') return
    if (state.get(file) === 'open') return void found.push([...way.slice(way.indexOf(file)), file].join(' → '))
    state.set(file, 'open')
    for (const to of graph.get(file) ?? []) visit(to, [...way, file])
    state.set(file, 'done')
  }
  for (const file of graph.keys()) visit(file, [])
  return found
}

const files = [...new Glob('src/**/*.ts').scanSync(ROOT)].toSorted()
const texts = new Map(
  await Promise.all(files.map(async (path) => [path, await Bun.file(join(ROOT, path)).text()] as const)),
)
const graph = new Map(
  [...texts].map(
    ([path, text]) =>
      [
        path,
        importsOf(text)
          .filter((to) => to.startsWith('.'))
          .map((to) => resolved(path, to)),
      ] as const,
  ),
)

describe('the house', () => {
  test.each(files)('%s keeps the rules', (path) => {
    const text = texts.get(path)!
    expect({
      upward: upward(path, text),
      banned: banned(path, text),
      long: [...tooLong(text), ...longFunctions(text)],
    }).toEqual({
      upward: [],
      banned: [],
      long: [],
    })
  })

  test('no import cycle', () => expect(cycles(graph)).toEqual([]))

  test('no file that nobody imports', () => {
    const used = new Set([...graph.values()].flat())
    expect(files.filter((path) => path !== 'src/main.ts' && !used.has(path))).toEqual([])
  })

  test('no test is switched off or alone', async () => {
    const tests = [...new Glob('tests/**/*.ts').scanSync(ROOT)].filter((path) => !path.endsWith('tidy.test.ts'))
    const off: string[] = []
    for (const path of tests)
      if (/\b(test|describe|it)\.(only|todo)\b/.test(await Bun.file(join(ROOT, path)).text())) off.push(path)
    expect(off).toEqual([])
  })

  test('the top level is what it should be', async () => {
    const listed = (
      await Bun.$`git ls-files --cached --others --exclude-standard`.cwd(ROOT).quiet().nothrow().text()
    ).split('\n')
    const top = new Set(listed.filter((path) => path !== '').map((path) => path.split('/')[0]!))
    const allowed = [
      'package.json',
      'bunfig.toml',
      'tsconfig.json',
      'src',
      'tests',
      'bench',
      'drizzle',
      'README.md',
      'bun.lock',
    ]
    expect([...top].filter((name) => !name.startsWith('.') && !allowed.includes(name))).toEqual([])
  })
})

describe('each rule fails on its sample', () => {
  test('an import that points up', () => {
    expect(upward('src/quota/gcra.ts', "import { limit } from '../pipeline/limit.ts'")).toEqual([
      'src/pipeline/limit.ts',
    ])
    expect(upward('src/base/ids.ts', "import type { Config } from '../config/schema.ts'")).toEqual([
      'src/config/schema.ts',
    ])
    expect(upward('src/pipeline/limit.ts', "import { takeRate } from '../quota/gcra.ts'")).toEqual([])
  })

  test.each([
    ['src/quota/gcra.ts', 'const now = Date.now()'],
    ['src/balance/choose.ts', 'const roll = Math.random()'],
    ['src/http/render.ts', "console.log('x')"],
    ['src/pipeline/limit.ts', "import { Elysia } from 'elysia'"],
    ['src/ledger/poster.ts', 'db.transaction(async (tx) => {})'],
    ['src/ledger/poster.ts', 'const row = value as any'],
    ['src/engines/url.ts', 'try { x() } catch {}'],
    ['src/config/load.ts', 'const port = process.env.PORT'],
  ])('%s with %p', (path, text) => expect(banned(path, text).length).toBe(1))

  test('words in comments are no code', () =>
    expect(banned('src/quota/gcra.ts', '// Date.now() is banned')).toEqual([]))

  test('a long file and a long function', () => {
    expect(tooLong('x\n'.repeat(251))).toEqual(['251 lines, at most 250'])
    expect(longFunctions(`const f = () => {\n${'  x()\n'.repeat(69)}}\n`)).toEqual(['line 1: 71 lines, at most 70'])
    expect(longFunctions(`const f = () => {\n${'  x()\n'.repeat(68)}}\n`)).toEqual([])
  })

  test('a cycle', () => {
    const ring = new Map([
      ['a', ['b']],
      ['b', ['c']],
      ['c', ['a']],
    ])
    expect(cycles(ring)).toEqual(['a → b → c → a'])
  })
})
