/**
 * A strict reader of the text exposition format 0.0.4, written from its description and sharing nothing with the
 * printer: throws, with the number of the line, at the first thing that is not as the format says.
 */
export type Parsed = Map<
  string,
  { help: string; type: string; samples: { name: string; labels: Map<string, string>; value: number }[] }
>

export const parsePrometheus = (text: string): Parsed => {
  const families: Parsed = new Map()
  if (!text.endsWith('\n')) throw new Error('the last line does not end')
  let open = ''
  const seen = new Set<string>()
  for (const [at, line] of text.slice(0, -1).split('\n').entries()) {
    const fault = (says: string) => new Error(`line ${at + 1}: ${says}: ${line}`)
    const help = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)$/.exec(line)
    if (help) {
      if (families.has(help[1]!)) throw fault('a family stands twice')
      if (/(^|[^\\])(\\\\)*\\([^\\n]|$)/.test(help[2]!)) throw fault('an escape that is none')
      families.set((open = help[1]!), { help: help[2]!, type: '', samples: [] })
      continue
    }
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line)
    const family = families.get(open)
    if (family === undefined) throw fault('a line before any family')
    if (type) {
      if (type[1] !== open || family.type !== '') throw fault('TYPE is not right after its HELP')
      family.type = type[2]!
      continue
    }
    const { name, labels, value } = readSample(line, fault)
    const plain = family.type === 'histogram' ? name.replace(/_(bucket|sum|count)$/, '') : name
    if (plain !== open || family.type === '') throw fault('a sample outside its family')
    const identity = `${name}${JSON.stringify([...labels].toSorted())}`
    if (seen.has(identity)) throw fault('a series stands twice')
    seen.add(identity)
    if (family.type === 'counter' && !name.endsWith('_total')) throw fault('a counter without _total')
    if (family.type !== 'gauge' && !(value >= 0)) throw fault('a count below 0')
    family.samples.push({ name, labels, value })
  }
  for (const [name, family] of families) if (family.type === 'histogram') checkHistogram(name, family.samples)
  return families
}

const readSample = (line: string, fault: (says: string) => Error) => {
  let at = /^[a-zA-Z_:][a-zA-Z0-9_:]*/.exec(line)?.[0].length ?? 0
  const name = line.slice(0, at)
  if (at === 0) throw fault('no name')
  const labels = new Map<string, string>()
  if (line[at] === '{') {
    at++
    while (line[at] !== '}') {
      const label = /^[a-zA-Z_][a-zA-Z0-9_]*/.exec(line.slice(at))?.[0]
      if (label === undefined || labels.has(label)) throw fault('no label, or one twice')
      at += label.length
      if (line.slice(at, at + 2) !== '="') throw fault('no value of a label')
      let value = ''
      for (at += 2; line[at] !== '"'; at++) {
        if (at >= line.length) throw fault('a label that does not end')
        if (line[at] !== '\\') value += line[at]
        else {
          const escape = { '\\': '\\', '"': '"', n: '\n' }[line[++at] ?? '']
          if (escape === undefined) throw fault('an escape that is none')
          value += escape
        }
      }
      labels.set(label, value)
      at++
      if (line[at] === ',') at++
      else if (line[at] !== '}') throw fault('neither , nor }')
    }
    at++
  }
  const number = /^ ([+-]?(\d+(\.\d+)?(e[+-]?\d+)?|Inf)|NaN)$/.exec(line.slice(at))?.[1]
  if (number === undefined) throw fault('no number')
  return { name, labels, value: Number(number.replace('Inf', 'Infinity')) }
}

const checkHistogram = (name: string, samples: { name: string; labels: Map<string, string>; value: number }[]) => {
  const of = (suffix: string) => samples.filter((sample) => sample.name === `${name}_${suffix}`)
  const buckets = of('bucket')
  const bounds = buckets.map(({ labels }) => Number((labels.get('le') ?? '?').replace('Inf', 'Infinity')))
  if (bounds.at(-1) !== Infinity) throw new Error(`${name}: the last bucket is not +Inf`)
  for (let at = 1; at < buckets.length; at++) {
    if (!(bounds[at]! > bounds[at - 1]!)) throw new Error(`${name}: bounds do not rise`)
    if (buckets[at]!.value < buckets[at - 1]!.value) throw new Error(`${name}: buckets are not cumulative`)
  }
  const [sum, count] = [of('sum'), of('count')]
  if (sum.length !== 1 || count.length !== 1) throw new Error(`${name}: _sum and _count stand once each`)
  if (count[0]!.value !== buckets.at(-1)!.value) throw new Error(`${name}: _count is not the last bucket`)
}
