import { expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { verifyCheckpoint } from '../../src/audit/checkpoint.ts'
import { openLog } from '../../src/audit/log.ts'
import { consistencyFault, inclusionFault } from '../../src/audit/verify.ts'
import { freshFolder, good } from './folder.ts'
import { leafHashesOf, leafOf, mth } from './reference.ts'

setDefaultTimeout(60_000)

const ROUNDS = 20

/** Runs the appender, kills it after it said a few lines, and returns the largest size that it said. */
const runAndKill = async (folder: string, lines_min: number): Promise<{ said: number; signed: number }> => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, 'appender.ts'), folder], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of child.stdout) {
    text += decoder.decode(chunk, { stream: true })
    if (text.split('\n').length > lines_min && !child.killed) child.kill('SIGKILL')
  }
  await child.exited
  const largest = (word: string) =>
    Math.max(0, ...[...text.matchAll(new RegExp(`${word} (\\d+)\n`, 'g'))].map((found) => Number(found[1])))
  return { said: Math.max(largest('size'), largest('open')), signed: largest('signed') }
}

test(`killed ${ROUNDS} times in the middle of appending, a log loses nothing that append returned for`, async () => {
  using folder = freshFolder()
  let before = 0
  let last_note = ''
  for (let round = 0; round < ROUNDS; round++) {
    const { said, signed } = await runAndKill(folder.path, 3 + ((round * 7) % 23))
    const log = good(openLog(folder.path, { origin: 'example.com/crash' }))
    expect(log.size()).toBeGreaterThanOrEqual(said)
    expect(said).toBeGreaterThan(before)
    const { checkpoint } = good(verifyCheckpoint(good(log.latest())?.note ?? good(log.checkpoint()), log.verifiers()))
    expect(checkpoint.size).toBeGreaterThanOrEqual(signed)
    if (before > 0) expect(consistencyFault(good(log.consistency(before)))).toBeUndefined()
    for (let index = 0; index < log.size(); index += 1 + Math.floor(log.size() / 40)) {
      expect(inclusionFault(good(log.inclusion(index)))).toBeUndefined()
      expect(good(log.leaf(index))).toEqual(leafOf(index))
    }
    before = log.size()
    last_note = good(log.checkpoint())
    log.close()
  }
  const log = good(openLog(folder.path, { origin: 'example.com/crash' }))
  expect(good(log.root())).toEqual(mth(leafHashesOf(log.size())))
  expect(good(log.latest())!.note).toBe(last_note)
  log.close()
}, 60_000)
