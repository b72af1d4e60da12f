import type { Model } from '../balance/catalogue.ts'
import type { House } from '../pipeline/house.ts'
import { SUBJECT } from '../table/layout.ts'
import { type Subject, subjectOf } from '../table/table.ts'

/** Where the jobs of a tenant that are not over are counted, over all workers. */
export const jobsSubject = (house: House, tenant: string): Subject | undefined => subjectOf(house.table, 'jobs', tenant)

/** Places at a model's engines that jobs may take: of each engine a share, and none while calls wait for the model. */
export const freePlaces = ({ table }: House, model: Model, share: number): number => {
  if (Atomics.load(table.i32, model.subject * 2 + SUBJECT.count) > 0) return 0
  return model.targets.reduce((sum, { engine }) => {
    const most = Math.max(1, Math.floor(engine.config.capacity * share))
    return sum + Math.max(0, most - Atomics.load(table.i32, engine.subject * 2 + SUBJECT.count))
  }, 0)
}
