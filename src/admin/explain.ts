import { decodeDecision, inWords } from '../balance/decision.ts'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { decisionText, oneCall } from '../ledger/queries.ts'
import { type AdminRoute, adminRoute } from './route.ts'

/** Why a call went where it went. */
export const EXPLAIN_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/calls/:id/explain',
    tag: 'ledger',
    summary: 'How one call came to its engine',
    description:
      'In sentences, and as the decision itself: candidates with their calls in flight and predicted cost, who was passed over and why, failed attempts, the wait for a place. `decision` is null for a call that had nothing to decide.',
    example: {
      id: 'call_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
      words: [
        'vllm-a was chosen as llama (least_loaded: it had the lowest predicted cost) among vllm-a (3 in flight, cost 41.2), vllm-b (9 in flight, cost 108.8).',
      ],
      decision: {
        model: 'llama-3.1-8b',
        picks: [{ engine: 'vllm-a', model: 'llama', why: 'least_loaded', seen: [], skips: [] }],
        misses: [],
        queue_ms: 0,
        queued_behind: 0,
        over_budget: false,
      },
    },
    failures: ['not_found'],
    run: ({ params }, { ledger_reader }) => {
      const id = params['id'] ?? ''
      const row = oneCall(ledger_reader, id)?.row
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
      return { json: { id, words, decision: decision ?? null } }
    },
  }),
]
