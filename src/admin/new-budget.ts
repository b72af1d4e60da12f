import { type Static, Type } from '@sinclair/typebox'
import type { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { Budget, type BudgetConfig } from '../config/schema.ts'
import { fieldFault } from './input.ts'

/** Budgets as a person gives them: what has a default may be absent. */
export const NewBudgets = Type.Array(
  Type.Object(
    {
      usd: Budget.properties.usd,
      per: Type.Optional(Budget.properties.per),
      timezone: Type.Optional(Budget.properties.timezone),
    },
    { additionalProperties: false },
  ),
  { maxItems: 8, description: 'All of them hold; none is no budget.' },
)

/** The budgets with their defaults, or the time zone that is none. */
export const wholeBudgets = (asked: Static<typeof NewBudgets>): BudgetConfig[] | Failure => {
  for (const [index, { timezone }] of asked.entries())
    if (timezone !== undefined && !isTimezone(timezone))
      return fieldFault(`budgets[${index}].timezone`, `${quoted(timezone)} is not a time zone`, 'allowed: an IANA name')
  return asked.map(({ usd, per = 'total', timezone = 'UTC' }) => ({ usd, per, timezone }))
}

const isTimezone = (text: string): boolean => {
  try {
    new Intl.DateTimeFormat('en', { timeZone: text })
    return true
  } catch {
    return false // The only thing that it throws for.
  }
}
