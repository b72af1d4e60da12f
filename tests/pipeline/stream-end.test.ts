import { expect, test } from 'bun:test'
import { TransportFailure } from '../../src/engines/transport.ts'
import { streamEnd } from '../../src/pipeline/stream-end.ts'
import { StreamSource } from '../../src/pipeline/stream-source.ts'
import { bytesOf, CH, D, DONE } from '../kit/script.ts'

const half = [D(CH({ content: 'a' }))]
const finished = [...half, D(CH({}, 'stop'))]
const errorEvent = (code: unknown) => D({ error: { message: 'm', type: 't', code } })
const cut = new TransportFailure('cut', true, 'reset by peer')
const cancelled = new TransportFailure('cancelled', true)
const too_large = Buffer.alloc(17 * 1024 * 1024, 0x61)

/** What came, how the body ended, what of ours had passed: the failure, who tells it, and whether the engine is blamed. */
const TABLE = [
  ['[DONE]', [...finished, DONE], null, undefined, undefined, 'us', false],
  ['[DONE] without a finish reason', [...half, DONE], null, undefined, undefined, 'us', false],
  ['finished, then a clean end', finished, null, undefined, undefined, 'us', false],
  ['finished, then a cut', finished, cut, undefined, undefined, 'us', false],
  ['finished, then our grace is over', finished, cancelled, 'silence', undefined, 'us', false],
  ['finished, then the last deadline', finished, cancelled, 'total', undefined, 'us', false],
  ['half, then a clean end', half, null, undefined, 'engine_cut', 'us', true],
  ['half, then a cut', half, cut, undefined, 'engine_cut', 'us', true],
  [
    'half, then bytes that are no HTTP',
    half,
    new TransportFailure('invalid', true),
    undefined,
    'engine_invalid',
    'us',
    true,
  ],
  ['half, then silence', half, cancelled, 'silence', 'engine_timeout', 'us', true],
  ['half, then the last deadline', half, cancelled, 'total', 'deadline_passed', 'us', false],
  ['an event without end', [...half, too_large], null, undefined, 'engine_invalid', 'us', true],
  ['an error of the engine', [...half, errorEvent(500)], null, undefined, 'engine_failed', 'engine', true],
  ['an error after the finish', [...finished, errorEvent(500)], null, undefined, 'engine_failed', 'engine', true],
  ['an error of the request', [...half, errorEvent(400)], null, undefined, 'engine_failed', 'engine', false],
  ['our credential refused', [...half, errorEvent(401)], null, undefined, 'engine_credential', 'us', true],
] as const

for (const [name, steps, end, overdue, code, tells, blamed] of TABLE)
  test(name, () => {
    const source = new StreamSource({ usage: false, choices: 1, alias: undefined })
    for (const step of steps) if (source.state === 'open') source.take(bytesOf(step))
    if (source.state === 'open') source.take(end)
    const judged = streamEnd(source, overdue)
    expect({
      code: judged.failure?.code,
      tells: judged.error_json ? 'engine' : 'us',
      blamed: judged.blame !== undefined,
    }).toEqual({ code, tells, blamed } as any)
  })
