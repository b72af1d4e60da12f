import { afterAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, rmSync, statfsSync, writeFileSync, writeSync, openSync, closeSync } from 'node:fs'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse } from '../kit/house.ts'
import { CH, D, DONE, end, json, script, sse200, until, WHOLE } from '../kit/script.ts'
import { eventually, gate, tempFolder } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine } from './traffic.ts'

setDefaultTimeout(60_000)

const folder = tempFolder('weir-full')
const disk = `${folder.path}/disk`
mkdirSync(disk)
const mounted = Bun.spawnSync(['mount', '-t', 'tmpfs', '-o', 'size=128m,mode=700', 'none', disk]).exitCode === 0
if (!mounted) console.warn('the disk-full test is skipped: this user may not mount a tmpfs')

describe.skipIf(!mounted)('a data folder whose disk is full', () => {
  afterAll(() => {
    expect(Bun.spawnSync(['umount', '-l', disk]).exitCode).toBe(0)
    folder[Symbol.dispose]()
  })

  /** Takes all the room there is, but for so many bytes. */
  const fill = (keep_bytes: number): void => {
    const fd = openSync(`${disk}/ballast`, 'a')
    for (const size of [1 << 20, 1 << 12]) {
      try {
        for (let left = room(); left >= keep_bytes + size; left = room()) writeSync(fd, new Uint8Array(size))
      } catch {
        // The house took the last of it first.
      }
    }
    closeSync(fd)
  }
  const room = (): number => {
    const { bavail, bsize } = statfsSync(disk)
    return bavail * bsize
  }
  const free = (): void => rmSync(`${disk}/ballast`, { force: true })

  test('new calls get 503 journal_full before any engine hears of them, running ones finish; it recovers by itself', async () => {
    const hold = gate()
    await using engine = startHostileEngine({
      answers: (request) =>
        request.text().includes('running')
          ? script(sse200, D(CH({ content: 'a' })), until(hold.opened), D(CH({ content: 'b' }, 'stop')), DONE, end)
          : json(200, WHOLE('hi', 5, 1)),
    })
    // Room for one segment of 16 MiB and the databases, not for a spare: so there is less to write until it is used up.
    fill(20 * 1024 * 1024)
    const plain = houseConfig(engine.url, { subjects_max: 64 })
    // Long names make long records.
    const config = { ...plain, models: [{ ...plain.models[0], targets: [{ engine: 'e1', model: 'm'.repeat(250) }] }] }
    await using house = await startHouse({ config, workers: 1, data: `${disk}/data` })
    const key = await house.key('acme')
    const bodies: string[] = []
    const ok = async (name: string) => {
      const body = marked(name, false)
      const result = await call(house.url, key, body)
      if (result.status === 200) bodies.push(body)
      return result
    }
    expect((await ok('before')).status).toBe(200)
    const running = marked('running', true)
    bodies.push(running)
    const stream = call(house.url, key, running)
    await eventually(() => engine.calls.now === 1)

    // The ledger cannot grow, nor can the journal. Calls go on while its room lasts.
    fill(0)
    let n = 0
    const flood = async () => {
      while (n < 40_000) {
        const result = await ok(`fill-${n++}-`.padEnd(240, 'x'))
        if (result.status !== 200) return result
      }
      throw new Error('the disk never filled')
    }
    const [refused] = await Promise.all(Array.from({ length: 16 }, flood))
    expect(refused!.status).toBe(503)
    expect(JSON.parse(refused!.text).error.code).toBe('journal_full')
    expect(house.logged('posting_postponed').length).toBeGreaterThan(0)
    await eventually(() => house.logged('journal_full').length > 0)
    expect(house.logged('journal_cannot_grow')[0]).toMatchObject({ level: 'warn', process: 'worker-0' })
    const before = engine.requests.length
    const again = await house.post('/v1/chat/completions', marked('refused', false), key)
    expect(again.status).toBe(503)
    expect(Number(again.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(((await again.json()) as { error: { code: string } }).error.code).toBe('journal_full')
    expect(engine.requests.length).toBe(before)
    await eventually(async () => (await fetch(`${house.ops_url}/ready`)).status === 503)

    // What runs, runs on.
    hold.open()
    expect(await stream).toMatchObject({ status: 200, whole: true, text: 'ab' })
    expect(house.logged('process_died')).toEqual([])

    free()
    const freed_at = performance.now()
    await eventually(async () => {
      expect((await ok(`after-${performance.now()}`)).status).toBe(200)
    }, 10_000)
    const recovered_ms = performance.now() - freed_at
    await eventually(() => expectOneRowEach(house.data, bodies), 20_000).catch((cause: Error) => {
      throw new Error(`${cause.message}\n${house.log().slice(-4_000)}`)
    })
    console.log(
      `full disk: ${bodies.length} calls, serves again after ${Math.round(recovered_ms)} ms, all rows after ${Math.round(performance.now() - freed_at)} ms`,
    )
    expect(house.rows().length).toBe(engine.requests.length)
    await eventually(async () => (await fetch(`${house.ops_url}/ready`)).status === 200, 5_000)
    await eventually(() => house.logged('journal_well').length > 0)
    expect(house.logged('process_died')).toEqual([])
    expect(await house.stop()).toBe(0)
  })

  test('a house that cannot get its files at start ends with 1 and says why; with room it starts', async () => {
    await using engine = markedEngine()
    fill(0)
    const failed = await startHouse({
      config: houseConfig(engine.url),
      data: `${disk}/other`,
      file: `${folder.path}/other.yaml`,
    }).then(
      () => '',
      (cause: Error) => cause.message,
    )
    expect(failed).toContain('the house ended with 1')
    expect(failed).toMatch(/ENOSPC|no space|full/i)
    free()
    writeFileSync(`${disk}/room`, 'x')
    await using house = await startHouse({
      config: houseConfig(engine.url),
      data: `${disk}/other`,
      file: `${folder.path}/other.yaml`,
    })
    expect(await house.stop()).toBe(0)
  })
})
