import type { Model, Target } from '../../src/balance/catalogue.ts'
import type { Wish } from '../../src/balance/choose.ts'
import { hashOf } from '../../src/balance/rendezvous.ts'
import type { StrategyName } from '../../src/balance/strategies.ts'
import { createTable, subjectOf, type Table } from '../../src/table/table.ts'
import { rollFrom } from '../kit/wait.ts'

export const NOW = 1_700_000_000_000

export type TargetMade = {
  readonly weight?: number
  readonly capacity?: number
  readonly context_tokens?: number
  readonly cost?: { readonly input: number; readonly output: number }
}

/** A target whose engine has a subject in the table and nothing else that is real. */
export const targetOf = (table: Table, name: string, made: TargetMade = {}): Target =>
  ({
    engine: {
      name,
      subject: subjectOf(table, 'engine', name)!,
      config: { name, capacity: made.capacity ?? 100, scrape_ms: 1_000 },
    },
    model: name,
    weight: made.weight ?? 1,
    id: hashOf(name),
    context_tokens: made.context_tokens,
    cost: made.cost,
    serves: 'm',
  }) as unknown as Target

export const tableIn = (folder: { readonly path: string }): Table => createTable(`${folder.path}/table`, 1_024, 0)

export const modelOf = (targets: readonly Target[], strategy: StrategyName = 'least_loaded') =>
  ({ targets, config: { strategy } }) as unknown as Pick<Model, 'targets' | 'config'>

/** A wish with defaults. */
export const wish = (made: Partial<Wish> & { readonly key?: number; readonly prompt_tokens?: number } = {}): Wish => ({
  ask: { key: made.key ?? 0, prompt_tokens: made.prompt_tokens ?? 0, answer_tokens: 256, margin: 1.25 },
  tried: [],
  ...made,
})

export const randomFrom = (seed: number) => {
  const roll = rollFrom(seed)
  return () => roll(1_000_000) / 1_000_000
}
