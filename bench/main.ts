import { mkdirSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { BENCHES } from './list.ts'
import { chart, report, table } from './kit/report.ts'
import { versions } from './kit/versions.ts'

const USAGE = 'bun run bench [NAME] [--json] [--seconds N] [--runs N] [--warm N] [--svg FOLDER]'

const asked = () => {
  try {
    return parseArgs({
      args: process.argv.slice(2),
      allowPositionals: true,
      options: {
        json: { type: 'boolean' },
        seconds: { type: 'string' },
        runs: { type: 'string' },
        warm: { type: 'string' },
        svg: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    })
  } catch (cause) {
    process.stderr.write(`bench: ${(cause as Error).message}\n${USAGE}\n`)
    process.exit(2)
  }
}

/** One benchmark by its name; without a name it lists them. */
const { values, positionals } = asked()
if (values.help) {
  process.stdout.write(`${USAGE}\n`)
  process.exit(0)
}
const name = positionals[0]
const bench = name === undefined ? undefined : BENCHES[name]
if (bench === undefined) {
  if (name !== undefined) process.stderr.write(`bench: "${name}" is not a benchmark; known:\n`)
  for (const [known, { what }] of Object.entries(BENCHES)) process.stdout.write(`${known.padEnd(18)} ${what}\n`)
  process.exit(name === undefined ? 0 : 2)
}
const number = (text: string | undefined, otherwise: number): number => {
  const value = text === undefined ? otherwise : Number(text)
  if (Number.isFinite(value) && value >= 0) return value
  process.stderr.write(`${text}: not a number\n`)
  process.exit(2)
}
const result = await bench.run({
  seconds: number(values.seconds, bench.seconds ?? 4),
  runs: number(values.runs, bench.runs ?? 5),
  warm_s: number(values.warm, 10),
})
const whole = report(name!, result, versions())
if (values.json) process.stdout.write(`${JSON.stringify(whole)}\n`)
else {
  const notes = result.notes.map((note) => `- ${note}`).join('\n')
  process.stdout.write(`${name}: ${whole.machine}, ${whole.date}\n\n${table(result.figures)}\n\n${notes}\n`)
}
if (values.svg !== undefined) {
  mkdirSync(values.svg, { recursive: true })
  writeFileSync(`${values.svg}/${name}.svg`, bench.draw?.(result.figures) ?? chart(name!, result.figures))
}
process.exit(0)
