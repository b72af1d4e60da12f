import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { chart, type Figures, report } from './kit/report.ts'
import { versions } from './kit/versions.ts'
import { BENCHES } from './list.ts'

/**
 * `bun bench/publish.ts [NAME …]`: runs benchmarks one after the other, each in a process of its own, and writes their
 * figures into `bench/RESULTS.md`, their charts into `bench/charts/`. Without names it runs all. Figures of benchmarks that
 * were not run stay as they were, with their own date.
 */
const FOLDER = import.meta.dir
const STORE = join(FOLDER, 'results.json')

type Published = ReturnType<typeof report> & { readonly load_before: number }
const published: Record<string, Published> = existsSync(STORE) ? JSON.parse(readFileSync(STORE, 'utf8')) : {}

const flags = process.argv.slice(2).filter((word) => word.startsWith('--'))
const asked = process.argv.slice(2).filter((word) => !word.startsWith('--'))

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
const table = (figures: Figures): string =>
  [
    row(['figure', 'median', 'lowest … highest', 'n']),
    '|---|--:|--:|--:|',
    ...Object.entries(figures).map(([name, one]) =>
      row([`\`${name}\``, `${one.value} ${one.unit}`, `${one.min} … ${one.max}`, String(one.n)]),
    ),
  ].join('\n')

const section = (name: string, one: Published): string => `## ${name}

${BENCHES[name]?.what ?? name}. ${one.date.slice(0, 16).replace('T', ' ')} UTC, ${one.machine.replace(/, load .*/, '')}, load average before it ${one.load_before.toFixed(1)}.

${table(one.figures)}

![${name}](charts/${name}.svg)

${one.notes.map((note) => `- ${note}`).join('\n')}
`

const write = (): void => {
  mkdirSync(join(FOLDER, 'charts'), { recursive: true })
  const names = Object.keys(BENCHES).filter((name) => published[name] !== undefined)
  for (const name of names) writeFileSync(join(FOLDER, 'charts', `${name}.svg`), chart(name, published[name]!.figures))
  writeFileSync(STORE, `${JSON.stringify(published, null, 1)}\n`)
  writeFileSync(
    join(FOLDER, 'RESULTS.md'),
    `# Results

The last published run of every benchmark, written by \`bun bench/publish.ts\`. The value is the median of n alternations in one
run; engine, load generator and servers share the machine. A load average well above 0 before a run means that others used
the machine too: times then hold their share, and CPU a call is higher than on a quiet machine.

Versions: ${Object.entries(versions())
      .map(([name, version]) => `${name} ${version}`)
      .join(', ')}.

${names.map((name) => section(name, published[name]!)).join('\n')}`,
  )
}

for (const name of asked.length > 0 ? asked : Object.keys(BENCHES)) {
  const load_before = loadavg()[0]!
  process.stderr.write(`${name} …\n`)
  const child = Bun.spawnSync([process.execPath, join(FOLDER, 'main.ts'), name, '--json', ...flags], {
    stderr: 'inherit',
  })
  if (child.exitCode !== 0) process.stderr.write(`${name}: failed, its old figures stay\n`)
  else published[name] = { ...(JSON.parse(child.stdout.toString()) as ReturnType<typeof report>), load_before }
  // After each: a long series that is ended early keeps what it has.
  write()
}
