import type { Framing, Script, Step } from './script.ts'
import type { Wire } from './wire.ts'

/** What a script that is played tells of itself. */
export type Playing = { state: 'answering' | 'answered' | 'cut' | 'client_left'; answer_bytes: number }

/** Longer than any test. */
const FOR_EVER_MS = 3_600_000

/**
 * Plays a script to its last step, or until the client is gone; a FIN does not count as gone if `half_open`. A script
 * without an end then waits for the client to leave.
 */
export const play = async (
  wire: Wire,
  steps: Script,
  playing: Playing | undefined,
  half_open: boolean | undefined,
): Promise<void> => {
  const left = () => wire.dead || (wire.gone !== undefined && !half_open) || undefined
  let framing: Framing = 'length'
  const send = async (bytes: Uint8Array) => {
    if (playing) playing.answer_bytes += bytes.length
    await wire.send(bytes)
  }
  const run = async (step: Step, write: (bytes: Uint8Array) => Promise<void>): Promise<void> => {
    if (step.do === 'head') framing = step.framing
    const bytes = wired(step, framing)
    if (bytes.length > 0) await write(bytes)
    if (step.do === 'wait') await wire.until(left, step.ms)
    if (step.do === 'never') await wire.until(left, FOR_EVER_MS)
    if (step.do === 'until') await Promise.race([step.opened, wire.until(left, FOR_EVER_MS)])
    if (step.do === 'stop_reading') wire.pause()
    if (step.do === 'go_on_reading') wire.resume()
    if (step.do === 'rst') wire.reset()
    if (step.do === 'cut') wire.close()
    if (step.do === 'end' && playing) playing.state = 'answered'
    if (step.do === 'end' && framing === 'close') wire.close()
    if (step.do === 'forever')
      for (let went = 0; went < step.bytes_max && !left(); went += step.bytes.length) {
        await write(step.bytes)
        await wire.until(left, step.pause_ms)
      }
    if (step.do === 'bytewise') {
      const single = async (all: Uint8Array) => {
        for (let at = 0; at < all.length && !left(); at++) {
          await send(all.subarray(at, at + 1))
          await (step.pause_ms > 0 ? wire.until(left, step.pause_ms) : Bun.sleep(0))
        }
      }
      for (const inner of step.steps) if (!left()) await run(inner, single)
    }
  }
  for (const step of steps) {
    if (left()) return
    await run(step, send)
  }
  if (playing?.state === 'answering') await wire.until(left, FOR_EVER_MS)
}

/** What a step puts on the wire under a framing. */
const wired = (step: Step, framing: Framing): Uint8Array => {
  if (step.do === 'head' || step.do === 'wire') return step.bytes
  if (step.do === 'end' && framing === 'chunked') return Buffer.from('0\r\n\r\n')
  if (step.do !== 'body' || step.bytes.length === 0) return new Uint8Array(0)
  if (framing !== 'chunked') return step.bytes
  return Buffer.concat([Buffer.from(`${step.bytes.length.toString(16)}\r\n`), step.bytes, Buffer.from('\r\n')])
}
