import { expect, test } from 'bun:test'
import {
  type Attempted,
  decodeDecision,
  type Decision,
  DECISION_BYTES_MAX,
  encodeDecision,
  inWords,
  newDecision,
  worthKeeping,
} from '../../src/balance/decision.ts'
import { forAll } from '../kit/wait.ts'

const pick = (engine: string, more: object = {}) => ({
  engine,
  model: 'm',
  why: 'least_loaded',
  seen: [],
  skips: [],
  ...more,
})
const attempt = (more: Partial<Attempted>): Attempted => ({
  ...{ engine: 'a', model: 'm', started_ms: 0, ended_ms: 0, outcome: '' },
  ...more,
})
const made = (more: Partial<Decision>): Decision => ({ ...newDecision('llama'), ...more })

test.each([
  ['one candidate, at once', made({ picks: [pick('a', { seen: [{ engine: 'a', calls: 0, cost: 1 }] })] }), false],
  [
    'two candidates',
    made({
      picks: [
        pick('a', {
          seen: [
            { engine: 'a', calls: 0, cost: 1 },
            { engine: 'b', calls: 0, cost: 1 },
          ],
        }),
      ],
    }),
    true,
  ],
  ['one passed over', made({ picks: [pick('a', { skips: [{ engine: 'b', why: 'full', wait_ms: 1 }] })] }), true],
  ['a wait', made({ picks: [pick('a')], queue_ms: 3 }), true],
  ['a failed attempt', made({ picks: [pick('a')], attempts: [attempt({ outcome: '500' })] }), true],
])('%s', (_name, decision, worth) => {
  expect(worthKeeping(decision)).toBe(worth)
})

test('it is told in words, in the order of what happened', () => {
  const decision = made({
    queue_ms: 120,
    queued_behind: 3,
    picks: [
      pick('a', {
        seen: [
          { engine: 'a', calls: 3, cost: 41.2 },
          { engine: 'b', calls: 9, cost: 108 },
        ],
        skips: [{ engine: 'c', why: 'cooling', wait_ms: 1_500 }],
      }),
      pick('b', { why: 'trial', skips: [{ engine: 'a', why: 'tried', wait_ms: 0 }] }),
    ],
    attempts: [
      attempt({ outcome: 'reset', ended_ms: 10 }),
      attempt({ outcome: 'engine_cut', started_ms: 10, ended_ms: 80, completion_tokens: 7 }),
      attempt({ engine: 'b', outcome: 'answered', started_ms: 81, ended_ms: 200, completion_tokens: 13 }),
    ],
  })
  expect(inWords(decision)).toEqual([
    'Every engine of llama was full: the call waited 120 ms, behind 3 others.',
    'a was chosen as m (least_loaded: it had the lowest predicted cost of those compared) among a (3 in flight, cost 41.2), b (9 in flight, cost 108); c was benched for another 1500 ms.',
    'a was asked at 0 ms and gave no answer at 10 ms: reset.',
    'a was asked at 10 ms and broke off at 80 ms, 7 tokens: engine_cut.',
    'b was chosen as m (trial: its bench was over and this call is its trial); a had been tried.',
    'b was asked at 81 ms and answered at 200 ms, 13 tokens.',
  ])
  expect(inWords(made({ picks: [pick('a')], over_budget: true })).at(-1)).toContain('retry budget')
})

test('however much there is to tell, it fits and can be read', () => {
  forAll(50, (roll) => {
    const name = () => 'e'.repeat(1 + roll(128))
    const decision = made({
      model: name(),
      picks: Array.from({ length: roll(12) }, () =>
        pick(name(), {
          seen: Array.from({ length: roll(64) }, () => ({ engine: name(), calls: roll(99), cost: roll(1e6) / 7 })),
          skips: Array.from({ length: roll(64) }, () => ({ engine: name(), why: 'full', wait_ms: roll(9_999) / 7 })),
        }),
      ),
      attempts: Array.from({ length: roll(12) }, () =>
        attempt({ engine: name(), outcome: '500', ended_ms: roll(999) / 7 }),
      ),
    })
    const text = encodeDecision(decision)
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(DECISION_BYTES_MAX)
    expect(decodeDecision(text)?.model).toBe(decision.model)
    expect(inWords(decodeDecision(text)!)).toBeArray()
  })
  expect(decodeDecision('{"model":"m","pic')).toBeUndefined()
})
