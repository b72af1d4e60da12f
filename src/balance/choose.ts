import { SUBJECT } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import type { Model, Target } from './catalogue.ts'
import type { Pick, Skip } from './decision.ts'
import type { Ask } from './field.ts'
import { type BenchKind, claimProbe, coolMs, lightBench, onProbation } from './health.ts'
import { remember } from './sessions.ts'
import { STRATEGIES } from './strategies.ts'
import { TableField } from './table-field.ts'

/** Why no target could be chosen: the shortest wait in milliseconds until one may be free. */
export type NoTarget = { readonly wait_ms: number; readonly why: 'cooling' | 'full' | 'tried' | 'context' }

/** What is asked of a choice beside the model. */
export type Wish = {
  readonly ask: Ask
  /** Targets that are not to be chosen. */
  readonly tried: readonly Target[]
  /** Only targets that declare a larger context than this. */
  readonly context_above?: number
  /** Estimates may be wrong: a target whose context seems too small is better than none. */
  readonly any_context?: boolean
  /** Where the choice is written down. */
  readonly picks?: Pick[]
}

/** Candidates that a decision tells of. */
const TOLD_MAX = 8
/** How far an estimate of the prompt may be above the truth. */
const ESTIMATE_SLACK = 2

/**
 * Chooses a target of a model by its strategy among those that are healthy, not full and not tried. An engine on
 * probation is chosen by the one caller that claims its trial. Of a model's targets at most half are benched for bad
 * answers; unreachable and broken ones do not count on that mercy, and slow ones only when nobody else is left. `random`
 * yields [0, 1).
 */
export const chooseTarget = (
  model: Choosable,
  wish: Wish,
  table: Table,
  now_ms: number,
  random: () => number,
): Target | NoTarget => {
  const field = fieldOf(table)
  field.reset(now_ms)
  const skips: Skip[] = []
  const trial = survey(model, wish, table, now_ms, field, skips)
  if (trial) {
    wish.picks?.push({ engine: trial.engine.name, model: trial.model, why: 'trial', seen: [], skips })
    return trial
  }
  if (field.size === 0) return nothing(skips)
  const { choose, remembers } = STRATEGIES[model.config.strategy]
  const chosen = field.size === 1 && !remembers ? 0 : choose(field, wish.ask, random)
  const target = field.target(chosen)
  const { key } = wish.ask
  if (remembers && key !== 0) remember(table, key, target.engine.subject, now_ms)
  wish.picks?.push({
    engine: target.engine.name,
    model: target.model,
    why: model.config.strategy,
    seen: seenOf(field, chosen),
    skips,
  })
  return target
}

type Choosable = {
  readonly targets: Model['targets']
  readonly config: { readonly strategy: Model['config']['strategy'] }
}

/** Fills the field; answers the target whose trial this call is, if there is one. */
const survey = (
  model: Choosable,
  wish: Wish,
  table: Table,
  now_ms: number,
  field: TableField,
  skips: Skip[],
): Target | undefined => {
  const { targets } = model
  const { subjects, capacities } = rosterOf(targets)
  // Plain reads, which cost a tenth of atomic ones: they only order candidates. What is claimed is claimed atomically.
  const { i32 } = table
  let out = 0
  let light = 0
  const any_tried = wish.tried.length > 0
  for (let nth = 0; nth < targets.length; nth++) {
    const subject = subjects[nth]!
    const calls = i32[subject * 2 + SUBJECT.count]!
    const target = targets[nth]!
    if (any_tried && wish.tried.includes(target)) skips.push({ engine: target.engine.name, why: 'tried', wait_ms: 0 })
    else if (tooSmall(target, wish)) skips.push({ engine: target.engine.name, why: 'context', wait_ms: 0 })
    else if (i32[subject * 2 + SUBJECT.fail_streak]! > 0) {
      const wait_ms = coolMs(table, subject, now_ms)
      if (wait_ms === 0 && calls < capacities[nth]! && claimProbe(table, subject, now_ms)) return target
      out++
      if (wait_ms > 0 && targets.length > 1 && lightBench(table, subject) !== undefined) light++
      skips.push({ engine: target.engine.name, why: 'cooling', wait_ms: wait_ms || 1_000 })
    } else if (calls >= capacities[nth]!) skips.push({ engine: target.engine.name, why: 'full', wait_ms: 1_000 })
    else field.add(target, subject, calls)
  }
  if (light > 0) spare(model, 'bad', out - Math.floor(targets.length / 2), wish, table, now_ms, field)
  // When nobody is left, one that was slow once is better than none: the machine may have been slow, and not the engine.
  if (light > 0 && field.size === 0) spare(model, 'silent', 1, wish, table, now_ms, field)
  return undefined
}

/** What is asked of every target at every choice, side by side. */
type Roster = { readonly subjects: Int32Array; readonly capacities: Float64Array }
const rosters = new WeakMap<readonly Target[], Roster>()
const rosterOf = (targets: readonly Target[]): Roster => {
  let roster = rosters.get(targets)
  if (roster === undefined) {
    roster = {
      subjects: Int32Array.from(targets, ({ engine }) => engine.subject),
      capacities: Float64Array.from(targets, ({ engine }) => engine.config.capacity),
    }
    rosters.set(targets, roster)
  }
  return roster
}

/** Takes back some of those that are benched for a reason, the soonest first. */
const spare = (
  { targets }: Choosable,
  kind: BenchKind,
  count: number,
  wish: Wish,
  table: Table,
  now_ms: number,
  field: TableField,
): void => {
  const benched = targets.filter(({ engine: { subject } }) => {
    return onProbation(table, subject) && lightBench(table, subject) === kind && coolMs(table, subject, now_ms) > 0
  })
  const soonest = benched.toSorted(
    (one, other) => coolMs(table, one.engine.subject, now_ms) - coolMs(table, other.engine.subject, now_ms),
  )
  let left = count
  for (const target of soonest) {
    const { subject, config } = target.engine
    const calls = Atomics.load(table.i32, subject * 2 + SUBJECT.count)
    if (left <= 0) return
    if (wish.tried.includes(target) || tooSmall(target, wish) || calls >= config.capacity) continue
    field.add(target, subject, calls)
    left--
  }
}

const tooSmall = ({ context_tokens }: Target, wish: Wish): boolean => {
  if (wish.context_above !== undefined) return context_tokens === undefined || context_tokens <= wish.context_above
  return context_tokens !== undefined && !wish.any_context && wish.ask.prompt_tokens > context_tokens * ESTIMATE_SLACK
}

const nothing = (skips: readonly Skip[]): NoTarget => {
  const of = (why: Skip['why']) => skips.filter((skip) => skip.why === why)
  const cooling = of('cooling')
  if (of('full').length > 0) return { wait_ms: 1_000, why: 'full' }
  if (cooling.length > 0) return { wait_ms: Math.min(...cooling.map(({ wait_ms }) => wait_ms)), why: 'cooling' }
  return { wait_ms: 1_000, why: of('context').length > 0 ? 'context' : 'tried' }
}

const seenOf = (field: TableField, chosen: number): Pick['seen'] => {
  const seen: Pick['seen'][number][] = []
  for (let at = 0; at < field.size && seen.length < TOLD_MAX; at++) {
    // The chosen one is always told of.
    const one = seen.length === TOLD_MAX - 1 && chosen > at ? chosen : at
    seen.push({ engine: field.target(one).engine.name, calls: field.calls(one), cost: field.cost(one) })
  }
  return seen
}

const fields = new WeakMap<Table, TableField>()
const fieldOf = (table: Table): TableField => {
  let field = fields.get(table)
  if (field === undefined) fields.set(table, (field = new TableField(table)))
  return field
}
