import type { Failure } from '../base/failure.ts'
import { type Enriched, pass, type Screened } from './call.ts'
import type { House } from './house.ts'

/** Where prompts and retrieved passages join a request. None is configurable yet, so every body passes as it came. */
export const enrich = (call: Screened, _house: House): Enriched | Failure => pass<Enriched>(call, 'enrich')
