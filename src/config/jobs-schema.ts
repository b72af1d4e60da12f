import { Type } from '@sinclair/typebox'
import { closed, int, section } from './kinds.ts'

/** How calls with `Prefer: respond-async` wait and are kept. */
export const Jobs = Type.Object(
  {
    queue_max: int(1, 10_000_000, 100_000, 'Jobs of one tenant that are not over; beyond it a call is refused.'),
    wait_ms: int(1_000, 2_592_000_000, 86_400_000, 'How long a job may wait until it begins.'),
    keep_ms: int(1_000, 2_592_000_000, 86_400_000, 'How long a job and its answer are kept once it is over.'),
    bytes_max: int(
      1_048_576,
      1_099_511_627_776,
      4_294_967_296,
      'Bytes of jobs and answers on the disk of one worker; over it the oldest answers go, then calls are refused.',
    ),
    attempts_max: int(1, 100, 3, 'Runs of one job, those that a dying process interrupts included.'),
    engine_share: Type.Number({
      exclusiveMinimum: 0,
      maximum: 1,
      default: 0.8,
      description: 'Share of an engine’s capacity that jobs may take, so that calls whose clients wait find room.',
    }),
    webhook_private: Type.Boolean({
      default: false,
      description: 'Webhooks may lead to private addresses. Any tenant could then reach what this machine reaches.',
    }),
  },
  section,
)

/** Where the ends of a tenant’s jobs are told. */
export const Webhook = Type.Object(
  {
    secret: Type.String({
      minLength: 16,
      maxLength: 256,
      writeOnly: true,
      description: 'Signs each webhook (HMAC-SHA256). Secret.',
    }),
    url: Type.Optional(
      Type.String({
        pattern: '^https?://',
        maxLength: 2_048,
        title: 'an address',
        'x-allowed': 'http://… or https://…',
        description: 'Where to, unless a call says otherwise in x-weir-webhook.',
      }),
    ),
  },
  closed,
)
