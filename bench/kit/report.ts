import { readFileSync } from 'node:fs'
import { cpus, release } from 'node:os'

/** One figure of a benchmark: the median of n alternations, with the lowest and the highest. */
export type Figure = {
  readonly value: number
  readonly unit: string
  readonly min: number
  readonly max: number
  readonly n: number
}
export type Figures = Readonly<Record<string, Figure>>

/** What a benchmark answers. */
export type Result = { readonly figures: Figures; readonly notes: readonly string[] }

/** What a benchmark is told. `warm_s`: load before the first figure, since a worker needs about ten seconds of it until its code is compiled. */
export type Options = { readonly seconds: number; readonly runs: number; readonly warm_s: number }

/** Samples by name, in the order of their first: what a benchmark collects over its alternations. */
export class Samples {
  readonly #all = new Map<string, { readonly unit: string; readonly values: number[] }>()

  take(name: string, unit: string, value: number): void {
    const one = this.#all.get(name) ?? { unit, values: [] }
    one.values.push(value)
    this.#all.set(name, one)
  }

  values(name: string): readonly number[] {
    return this.#all.get(name)?.values ?? []
  }

  figures(): Figures {
    return Object.fromEntries([...this.#all].map(([name, { unit, values }]) => [name, figure(values, unit)]))
  }
}

/** What to say of the load generator: a run that it limited says nothing of the server. */
export const clientNote = (cores_max: number, threads = 1): string =>
  cores_max > 0.9 * threads
    ? `LIMITED BY THE LOAD GENERATOR: it used ${cores_max.toFixed(2)} of ${threads} cores`
    : `the load generator used at most ${cores_max.toFixed(2)} of ${threads} cores`

/** The figure of several samples. */
export const figure = (samples: readonly number[], unit: string): Figure => {
  const sorted = samples.toSorted((one, other) => one - other)
  const middle = sorted.length / 2
  const value = sorted.length % 2 === 1 ? sorted[Math.floor(middle)]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { value: round(value), unit, min: round(sorted[0]!), max: round(sorted.at(-1)!), n: sorted.length }
}

const round = (value: number): number => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(4)))

/** The object that `--json` prints. */
export const report = (name: string, { figures, notes }: Result, versions: Readonly<Record<string, string>>) => ({
  name,
  date: new Date().toISOString(),
  machine: machine(),
  versions,
  figures,
  notes,
})

export const machine = (): string => {
  const list = cpus()
  const load = readFileSync('/proc/loadavg', 'utf8').split(' ').slice(0, 3).join(' ')
  return `${list.length} × ${list[0]?.model.trim() ?? 'unknown CPU'}, Linux ${release()}, load ${load}`
}

/** A table for the terminal. */
export const table = (figures: Figures): string => {
  const rows = Object.entries(figures).map(([name, one]) => [
    name,
    String(one.value),
    one.unit,
    `${one.min} … ${one.max}`,
    String(one.n),
  ])
  const all = [['figure', 'median', 'unit', 'lowest … highest', 'n'], ...rows]
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)))
  return all
    .map((row) =>
      row
        .map((cell, column) => (column === 1 ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!)))
        .join('  '),
    )
    .join('\n')
}

/** A bar chart of figures of one unit, as an SVG with no outside reference. */
export const chart = (title: string, figures: Figures): string => {
  const rows = Object.entries(figures)
  const high = Math.max(...rows.map(([, one]) => one.max), 1e-9)
  const left = 260
  const wide = 520
  const bars = rows.map(([name, one], at) => {
    const y = 48 + at * 26
    const x = (value: number) => left + (value / high) * wide
    return `<text x="${left - 8}" y="${y + 13}" text-anchor="end">${escaped(name)}</text><rect x="${left}" y="${y}" width="${x(one.value) - left}" height="18" rx="2" fill="#2b6cb0"/><line x1="${x(one.min)}" x2="${x(one.max)}" y1="${y + 9}" y2="${y + 9}" stroke="#1a202c" stroke-width="2"/><text x="${x(one.max) + 8}" y="${y + 13}">${one.value} ${escaped(one.unit)}</text>`
  })
  const height = 64 + rows.length * 26
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 ${height}" font-family="system-ui, sans-serif" font-size="13"><rect width="960" height="${height}" fill="#fff"/><text x="16" y="28" font-size="16" font-weight="600">${escaped(title)}</text>${bars.join('')}</svg>\n`
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
