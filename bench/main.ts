import { mkdirSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { floorBench } from './floor.ts'
import { chart, type Options, report, type Result, table } from './kit/report.ts'

/** `bun run bench NAME [--json] [--seconds N] [--runs N] [--svg FOLDER]`; without a name it lists them. */
const BENCHES: Readonly<Record<string, readonly [run: (options: Options) => Promise<Result>, what: string]>> = {
  floor: [floorBench, 'CPU of a governed call against nginx proxy_pass, JSON and stream'],
}

const { values, positionals } = parseArgs({
  args: process.argv.slice(2),
  allowPositionals: true,
  options: {
    json: { type: 'boolean' },
    seconds: { type: 'string' },
    runs: { type: 'string' },
    svg: { type: 'string' },
  },
})
const name = positionals[0]
const bench = name === undefined ? undefined : BENCHES[name]
if (bench === undefined) {
  for (const [known, [, what]] of Object.entries(BENCHES)) process.stdout.write(`${known.padEnd(18)} ${what}\n`)
  process.exit(name === undefined ? 0 : 2)
}
const result = await bench[0]({ seconds: Number(values.seconds ?? 4), runs: Number(values.runs ?? 5) })
const whole = report(name!, result, { bun: Bun.version, weir: '0.1.0' })
if (values.json) process.stdout.write(`${JSON.stringify(whole)}\n`)
else
  process.stdout.write(
    `${name}: ${whole.machine}, ${whole.date}\n\n${table(result.figures)}\n\n${result.notes.map((note) => `- ${note}`).join('\n')}\n`,
  )
if (values.svg !== undefined) {
  mkdirSync(values.svg, { recursive: true })
  writeFileSync(`${values.svg}/${name}.svg`, chart(name!, result.figures))
}
process.exit(0)
