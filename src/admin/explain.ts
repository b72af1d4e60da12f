import { type Decision, decodeDecision, inWords } from '../balance/decision.ts'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { decisionText, oneCall } from '../ledger/queries.ts'
import { isoOf } from '../ledger/wire.ts'
import { REFUSED_SLOTS } from '../table/layout.ts'
import { findRefused } from '../table/refused-ring.ts'
import type { Table } from '../table/table.ts'
import { type AdminRoute, adminRoute } from './route.ts'

/** Why a call went where it went. */
export const EXPLAIN_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/calls/:id/explain',
    tag: 'ledger',
    summary: 'How one call came to its engine',
    description:
      'In sentences, and as the decision itself: candidates with their calls in flight and predicted cost, who was passed over and why, each attempt with its times (since the call came in), outcome and tokens, the wait for a place. `decision` is null for a call that had nothing to decide. Of the newest ' +
      REFUSED_SLOTS +
      ' calls of known keys that were refused before any engine heard of them, `refused` says why; they have no row.',
    example: {
      id: 'call_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
      words: [
        'vllm-a was chosen as llama (least_loaded: it had the lowest predicted cost) among vllm-a (3 in flight, cost 41.2), vllm-b (9 in flight, cost 108.8).',
      ],
      decision: {
        model: 'llama-3.1-8b',
        picks: [{ engine: 'vllm-a', model: 'llama', why: 'least_loaded', seen: [], skips: [] }],
        attempts: [
          {
            engine: 'vllm-a',
            model: 'llama',
            started_ms: 1,
            ended_ms: 812,
            outcome: 'answered',
            completion_tokens: 40,
          },
        ],
        queue_ms: 0,
        queued_behind: 0,
        over_budget: false,
        unpaid: [],
        limited: [],
      },
      refused: null,
    },
    failures: ['not_found'],
    run: ({ params }, { ledger_reader, table }) => {
      const id = params['id'] ?? ''
      const row = oneCall(ledger_reader, id)?.row
      const refused = row === undefined ? refusedCall(table, id) : undefined
      if (refused !== undefined) return { json: refused }
      if (row === undefined)
        return new Failure('not_found', {
          says: `The ledger has no call ${quoted(id)}; a call is posted within about a second of its end.`,
        })
      const text = decisionText(ledger_reader, id)
      const decision = text === undefined ? undefined : decodeDecision(text)
      const words =
        decision === undefined
          ? [`${row.engine} was the only engine that could take the call, and answered it.`]
          : inWords(decision)
      return { json: { id, words, decision: decision ?? null, refused: null } }
    },
  }),
]

type Refused = { readonly at_ms: number; readonly passed: string; readonly code: string; readonly says: string }

/** What the house remembers of a refused call; undefined if it was none, or long ago. */
const refusedCall = (table: Table, id: string): object | undefined => {
  const text = /^call_[0-9a-f]{32}$/.test(id) ? findRefused(table, `{"id":"${id}"`) : undefined
  if (text === undefined) return undefined
  try {
    const {
      id: _id,
      decision,
      at_ms,
      ...said
    } = JSON.parse(text) as Refused & { id: string; decision: Decision | null }
    const words = decision === null ? [] : inWords(decision)
    words.push(`The call was refused after ${said.passed}, before any engine heard of it: ${said.code}. ${said.says}`)
    return { id, words, decision, refused: { ...said, at: isoOf(at_ms) } }
  } catch {
    return undefined // Overtaken while it was read: it is gone.
  }
}
