import { afterAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { fsck } from '../../src/audit/fsck.ts'
import { ADMIN_TOKEN, startHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine } from './traffic.ts'

setDefaultTimeout(60_000)

const folder = tempFolder('weir-full-audit')
const data = `${folder.path}/data`
const audit = `${data}/audit`
mkdirSync(audit, { recursive: true })
const mounted = Bun.spawnSync(['mount', '-t', 'tmpfs', '-o', 'size=8m,mode=700', 'none', audit]).exitCode === 0
if (!mounted) console.warn('the test of a full audit folder is skipped: this user may not mount a tmpfs')

describe.skipIf(!mounted)('an audit folder whose disk is full', () => {
  afterAll(() => {
    expect(Bun.spawnSync(['umount', '-l', audit]).exitCode).toBe(0)
    folder[Symbol.dispose]()
  })

  const fill = (): void => {
    const fd = openSync(`${audit}/ballast`, 'a')
    try {
      for (;;) writeSync(fd, new Uint8Array(4096))
    } catch {
      // Full.
    }
    closeSync(fd)
  }

  test('calls are answered and posted, also by a house that starts; with room again every row has its leaf', async () => {
    await using engine = markedEngine()
    const settings = { config: houseConfig(engine.url), workers: 1, data }
    const bodies: string[] = []
    const calls = async (house: { readonly url: string }, key: string, name: string, count: number) => {
      for (let nth = 0; nth < count; nth++) {
        bodies.push(marked(`${name}-${nth}`, false))
        expect((await call(house.url, key, bodies.at(-1)!)).status).toBe(200)
      }
    }
    const posted = () => eventually(() => expectOneRowEach(data, bodies), 5_000)
    const check = () => fsck(data, { keys: [], saved: undefined })

    await using first = await startHouse(settings)
    const key = await first.key('acme')
    await calls(first, key, 'room', 5)
    fill()
    await calls(first, key, 'full', 50)
    await posted()
    await eventually(() => expect(first.logged('log_not_followed')).toHaveLength(1), 5_000)
    // The auditor cannot do what is left, and says so; nobody waits a minute for it.
    expect(await first.stop()).toBe(1)
    expect(check().fault).toBeUndefined()
    expect(check().notes.join()).toMatch(/\d+ leaves that are not signed are missing/)

    await using second = await startHouse(settings)
    await calls(second, key, 'still', 5)
    await posted()
    rmSync(`${audit}/ballast`)
    await eventually(async () => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` }
      const checkpoint = await (await fetch(`${second.ops_url}/audit/checkpoint`, { headers })).text()
      expect(Number(checkpoint.split('\n')[1])).toBeGreaterThan(bodies.length)
    }, 5_000)
    expect(await second.stop()).toBe(0)
    expect(check()).toMatchObject({ fault: undefined, notes: [] })
  })
})
