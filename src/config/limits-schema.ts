import { type Static, Type } from '@sinclair/typebox'
import { choice, choiceOf, closed, instant, limit, section, usd } from './kinds.ts'

/** Limits and budgets, which keys, tenants, end users and models have alike. */

/** A class of `x-weir-priority`. */
export const PriorityMax = choiceOf(['low', 'normal', 'high'])
export type PriorityClass = Static<typeof PriorityMax>

export const Limits = Type.Object(
  {
    requests_per_minute: limit(1_000_000_000, 'Requests a minute (GCRA, burst of one minute’s worth).'),
    tokens_per_minute: limit(1_000_000_000_000, 'Tokens a minute.'),
    concurrent: limit(10_000_000, 'Calls at once; a stream counts until it ends.'),
  },
  section,
)

export const Budget = Type.Object(
  {
    usd: usd('What may be spent in one window; "0" admits only what is free.'),
    per: choice(['total', 'day', 'week', 'month'], 'total', 'The window.'),
    timezone: Type.String({
      default: 'UTC',
      maxLength: 64,
      description: 'IANA name of the zone in which windows begin.',
    }),
    alert_share: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: 1,
        description: 'Share of the limit at which the log tells (budget_threshold), once a window; never if absent.',
      }),
    ),
    increases: Type.Optional(
      Type.Array(
        Type.Object(
          {
            usd: usd('How much more may be spent in a window.'),
            until: instant('When the increase ends.'),
            reason: Type.Optional(Type.String({ maxLength: 1_024, description: 'Why.' })),
          },
          closed,
        ),
        { maxItems: 256, description: 'Temporary increases; none if absent.' },
      ),
    ),
  },
  closed,
)
