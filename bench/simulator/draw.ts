import type { Figures } from '../kit/report.ts'

/** Panels of bars, one a scenario and measure, as an SVG with no outside reference. */
export const drawRouting = (figures: Figures, scenarios: readonly string[], routers: readonly string[]): string => {
  const measures = [
    ['first_token_p50_ms', 'first token P50, ms'],
    ['first_token_p99_ms', 'first token P99, ms (logarithmic)'],
    ['cache_hit_share', 'share of prompt tokens from the cache'],
  ] as const
  const wide = 360
  const high = 40 + routers.length * 22
  const panels = scenarios.flatMap((scenario, row) =>
    measures.map(([measure, title], column) => {
      const values = routers.map((router) => figures[`${scenario}_${router}_${measure}`]?.value ?? 0)
      const log = measure === 'first_token_p99_ms'
      const scale = (value: number) => (log ? Math.log10(Math.max(1, value)) : value)
      const most = Math.max(...values.map(scale), 1e-9)
      const bars = routers.map((router, nth) => {
        const y = 34 + nth * 22
        const length = (scale(values[nth]!) / most) * 150
        const shown = values[nth]! >= 10 ? Math.round(values[nth]!) : values[nth]!.toFixed(2)
        return `<text x="118" y="${y + 12}" text-anchor="end">${router}</text><rect x="124" y="${y}" width="${length.toFixed(1)}" height="15" rx="2" fill="${router === 'round_robin' ? '#a0aec0' : '#2b6cb0'}"/><text x="${(130 + length).toFixed(1)}" y="${y + 12}">${shown}</text>`
      })
      return `<g transform="translate(${column * wide},${40 + row * (high + 16)})"><text x="8" y="18" font-weight="600">${scenario}: ${title}</text>${bars.join('')}</g>`
    }),
  )
  const height = 48 + scenarios.length * (high + 16)
  const width = wide * measures.length
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12"><rect width="${width}" height="${height}" fill="#fff"/><text x="8" y="26" font-size="16" font-weight="600">Routing simulator: strategies over the same traffic</text>${panels.join('')}</svg>\n`
}
