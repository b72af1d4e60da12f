/** The text exposition format of Prometheus, version 0.0.4. */
export const PROMETHEUS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export type Labels = Readonly<Record<string, string | number>>

/** One number of a family, told from its siblings by its labels. */
export type Sample = { readonly labels?: Labels; readonly value: number }

/** Cumulative counts, the last bound being +Inf: one more count than bounds. */
export type Distribution = { readonly labels?: Labels; readonly buckets: readonly number[]; readonly sum: number }

/** All series of one name. Counters end in `_total`; units are seconds and bytes and stand last in the name. */
export type Family = { readonly name: string; readonly help: string } & (
  | { readonly type: 'counter' | 'gauge'; readonly samples: readonly Sample[] }
  | { readonly type: 'histogram'; readonly bounds: readonly number[]; readonly distributions: readonly Distribution[] }
)

/** Prints families. A family without a series is left out. Throws on a name or label that the format does not allow. */
export const printFamilies = (families: readonly Family[]): string => families.map(printFamily).join('')

const printFamily = (family: Family): string => {
  if (!NAME.test(family.name)) throw new Error(`not the name of a metric: ${family.name}`)
  const lines = family.type === 'histogram' ? histogramLines(family) : sampleLines(family)
  if (lines.length === 0) return ''
  return `# HELP ${family.name} ${escaped(family.help)}\n# TYPE ${family.name} ${family.type}\n${lines.join('\n')}\n`
}

const sampleLines = (family: Extract<Family, { samples: unknown }>): string[] =>
  family.samples.map(({ labels, value }) => line(family.name, labels, value))

const histogramLines = ({ name, bounds, distributions }: Extract<Family, { bounds: unknown }>): string[] =>
  distributions.flatMap(({ labels, buckets, sum }) => {
    if (buckets.length !== bounds.length + 1)
      throw new Error(`${name}: ${buckets.length} buckets for ${bounds.length} bounds`)
    return [
      ...buckets.map((count, at) => line(`${name}_bucket`, { ...labels, le: number(bounds[at] ?? Infinity) }, count)),
      line(`${name}_sum`, labels, sum),
      line(`${name}_count`, labels, buckets.at(-1)!),
    ]
  })

const line = (name: string, labels: Labels | undefined, value: number): string => {
  const pairs = Object.entries(labels ?? {}).map(([label, text]) => {
    if (!LABEL.test(label)) throw new Error(`not the name of a label: ${label}`)
    return `${label}="${escaped(String(text)).replaceAll('"', '\\"')}"`
  })
  return `${name}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${number(value)}`
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const LABEL = /^[a-zA-Z_][a-zA-Z0-9_]*$/

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')

const number = (value: number): string =>
  Number.isFinite(value) ? String(value) : Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf'
