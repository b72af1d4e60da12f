import { afterAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { checkpointText, signCheckpoint } from '../../src/audit/checkpoint.ts'
import { type Log, openLog } from '../../src/audit/log.ts'
import { formatSignerKey, formatVerifierKey, newSignerKey } from '../../src/audit/note-key.ts'
import { consistencyJson, inclusionJson } from '../../src/audit/wire.ts'
import { freshFolder, good } from './folder.ts'
import { leavesOf } from './reference.ts'

setDefaultTimeout(60_000)

/** The checker in `go/` is built from pinned modules; without Go, or where they cannot be had, these tests are skipped. */
const built = ((): ({ path: string } & Disposable) | undefined => {
  if (!Bun.which('go')) return undefined
  const folder = freshFolder()
  const build = Bun.spawnSync(['go', 'build', '-o', `${folder.path}/check`, '.'], {
    cwd: join(import.meta.dir, 'go'),
    env: { ...process.env, GOTOOLCHAIN: 'local', GOFLAGS: '-buildvcs=false -mod=readonly' },
    timeout: 90_000,
  })
  if (build.success) return folder
  folder[Symbol.dispose]()
  return undefined
})()

const check = async (claims: readonly object[]): Promise<string[]> => {
  const child = Bun.spawn([`${built!.path}/check`], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' })
  child.stdin.write(claims.map((claim) => `${JSON.stringify(claim)}\n`).join(''))
  await child.stdin.end()
  const text = await new Response(child.stdout).text()
  await child.exited
  return text.trimEnd().split('\n')
}

describe.skipIf(!built)('checked by the code of others (Go)', () => {
  const made = (folder: string): Log => {
    const log = good(openLog(folder, { origin: 'example.com/weir' }))
    good(log.append(leavesOf(0, 700)))
    return log
  }
  afterAll(() => built![Symbol.dispose]())
  const base64 = (bytes: Uint8Array) => bytes.toBase64()

  test('inclusion and consistency proofs hold, and changed ones do not', async () => {
    using folder = freshFolder()
    const log = made(folder.path)
    const claims: object[] = []
    for (let size = 1; size <= 700; size += 1 + (size >> 4)) {
      for (let index = 0; index < size; index += 1 + (size >> 3)) {
        const leaf = base64(good(log.leaf(index)))
        claims.push({ kind: 'inclusion', ...inclusionJson(good(log.inclusion(index, size))), leaf })
        claims.push({ kind: 'consistency', ...consistencyJson(good(log.consistency(index + 1, size))) })
      }
    }
    const answers = await check(claims)
    expect(answers).toEqual(claims.map(() => 'ok'))
    const wrong = { ...inclusionJson(good(log.inclusion(3, 700))), leaf: base64(good(log.leaf(4))) }
    expect(await check([{ kind: 'inclusion', ...wrong }])).not.toEqual(['ok'])
    log.close()
  })

  test('checkpoints open under their verifier keys, and the private key signs the same there', async () => {
    using folder = freshFolder()
    const log = made(folder.path)
    const one = good(log.checkpoint())
    const [old_key, new_key] = good(log.rotateKey())
    const both = good(log.checkpoint())
    const text = checkpointText({ origin: 'example.com/weir', size: 700, root: good(log.root()) })
    const signer = newSignerKey('example.com/weir')
    const signed = signCheckpoint({ origin: 'example.com/weir', size: 700, root: good(log.root()) }, [signer])
    const claims = [
      { note: one, keys: [formatVerifierKey(old_key!)] },
      { note: both, keys: [formatVerifierKey(old_key!), formatVerifierKey(new_key!)] },
      { note: signed, keys: [formatVerifierKey(signer.verifier)], signer: formatSignerKey(signer) },
    ].map((claim) => ({ kind: 'note', text, ...claim }))
    expect(await check(claims)).toEqual(['ok', 'ok', 'ok'])
    expect(await check([{ ...claims[0]!, keys: [formatVerifierKey(new_key!)] }])).not.toEqual(['ok'])
    log.close()
  })
})
