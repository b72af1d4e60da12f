import { expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import type { Failure } from '../../src/base/failure.ts'
import { admit } from '../../src/pipeline/admit.ts'
import type {
  Admitted,
  Arrival,
  Call,
  Enriched,
  Framed,
  Identified,
  Limited,
  Routed,
  Screened,
} from '../../src/pipeline/call.ts'
import { enrich } from '../../src/pipeline/enrich.ts'
import { forward } from '../../src/pipeline/forward.ts'
import { frame } from '../../src/pipeline/frame.ts'
import type { House } from '../../src/pipeline/house.ts'
import { identify } from '../../src/pipeline/identify.ts'
import { limit } from '../../src/pipeline/limit.ts'
import { route } from '../../src/pipeline/route.ts'
import { screen } from '../../src/pipeline/screen.ts'

const FILE = new URL('../../src/pipeline/pipeline.ts', import.meta.url)
const README = new URL('../../README.md', import.meta.url)

/** The stages in the order in which the pipeline calls them. */
const inCode = (): string[] =>
  [...readFileSync(FILE, 'utf8').matchAll(/^ {4,6}const \w+ = (?:await )?(\w+)\(\w+, house\)$/gm)].map(
    ([, name]) => name!,
  )

test('the figure in the README shows the order of the code', () => {
  const text = existsSync(README) ? readFileSync(README, 'utf8') : ''
  const figure = text.split('\n').find((line) => line.startsWith('client ─▶ '))
  // Without a README this fails: the figure is part of the promise.
  expect(figure, 'README.md has no line "client ─▶ … ─▶ engine"').toBeDefined()
  expect(figure!.trim().split(/\s*─▶\s*/)).toEqual(['client', ...inCode(), 'engine'])
})

test('the pipeline calls eight stages, each once, and admit before all', () => {
  expect(inCode()).toEqual(['admit', 'frame', 'identify', 'limit', 'screen', 'enrich', 'route', 'forward'])
})

/**
 * Never run: the compiler is the test. `bun run check` fails here if a line that must not compile does, since an
 * expectation of an error that is not there is an error itself.
 */
export const doesNotCompile = (
  house: House,
  arrival: Arrival,
  call: Call,
  admitted: Admitted,
  framed: Framed,
  identified: Identified,
  limited: Limited,
  screened: Screened,
  enriched: Enriched,
  routed: Routed,
): unknown => [
  // The right way compiles.
  [admit(arrival, house), frame(admitted, house), identify(framed, house), limit(identified, house)],
  [screen(limited, house), enrich(screened, house), route(enriched, house), forward(routed, house)],
  // @ts-expect-error admit left out
  frame(call, house),
  // @ts-expect-error frame left out
  identify(admitted, house),
  // @ts-expect-error identify left out
  limit(framed, house),
  // @ts-expect-error limit left out
  screen(identified, house),
  // @ts-expect-error screen left out
  enrich(limited, house),
  // @ts-expect-error enrich left out
  route(screened, house),
  // @ts-expect-error route left out
  forward(enriched, house),
  // @ts-expect-error identify before frame
  frame(identified, house),
  // @ts-expect-error limit before identify
  identify(limited, house),
  // @ts-expect-error screen before limit
  limit(screened, house),
  // @ts-expect-error enrich before screen
  screen(enriched, house),
  // @ts-expect-error route before enrich
  enrich(routed, house),
  // @ts-expect-error a failure is not handled
  frame(admit(arrival, house), house),
  // @ts-expect-error a promise is not awaited
  screen(limit(identified, house), house),
]

/** A stage's failure is part of its type: what ignores it does not compile. */
export const failuresAreTyped = (house: House, framed: Framed): Failure | undefined => {
  const identified = identify(framed, house)
  // @ts-expect-error the tenant of a failure
  void identified.tenant
  return undefined
}
