import { expect, setDefaultTimeout, test } from 'bun:test'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, D, never, script, sse200 } from '../kit/script.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** While tokens are counted: the counter hangs, it dies, and the whole house dies. */

const WORDS = ['The quick', ' brown fox', ' jumped over', ' it all']
const tokens = countTokens(WORDS.join(''))

/** Pids of the processes that count for a worker of the house. */
const counters = (house: TestHouse): number[] => {
  const workers = house.pids('worker')
  return Bun.spawnSync(['ps', '-eo', 'pid=,ppid=,args='])
    .stdout.toString()
    .split('\n')
    .filter((line) => line.includes('token-count-child'))
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([, parent]) => workers.includes(parent!))
    .map(([pid]) => pid!)
}

const config = (url: string) => ({
  engines: [{ name: 'e', url, probe_ms: 0, scrape_ms: 0 }],
  models: [{ name: 'm', targets: [{ engine: 'e' }], price: { input: '2', output: '8' }, limits: { concurrent: 1 } }],
  tenants: [{ name: 't', budgets: [{ usd: '1' }] }],
})

/** Has a client leave once it has all. */
const leave = async (house: TestHouse, key: string): Promise<void> => {
  using client = await connectRaw(house.port)
  const body = { model: 'm', stream: true, max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, body))
  await eventually(() => client.unread().includes('it all'), 10_000)
  client.close()
}

test('a counter that hangs or dies: the old count; a house that dies meanwhile: the progress it wrote', async () => {
  await using engine = startHostileEngine({
    answers: [
      script(
        sse200,
        WORDS.map((text) => D(CH({ content: text }))),
        never,
      ),
    ],
  })
  using folder = tempFolder('weir-counting')
  const data = `${folder.path}/data`
  await using house = await startHouse({ config: config(engine.url), data })
  const key = await house.key('t')
  expect(counters(house)).toEqual([])

  await leave(house, key)
  expect((await house.rowsReach(1, 15_000))[0]).toMatchObject({ completion_tokens: tokens, usage_source: 'estimated' })
  const [first] = counters(house)
  expect(first).toBeGreaterThan(0)

  process.kill(first!, 'SIGSTOP')
  await leave(house, key)
  // The engine is told, and the one place of the model is free, before anything is counted.
  expect((await engine.hangUp(1)).by).toBe('peer')
  await leave(house, key)
  expect(house.rows()).toHaveLength(1)
  process.kill(first!, 'SIGKILL')
  const rows = await house.rowsReach(3, 5_000)
  // Text of 16 bytes an event at most: an event is a token.
  expect(rows[1]).toMatchObject({ ending: 'cut_by_client', completion_tokens: WORDS.length, usage_source: 'estimated' })

  // It is not started again at once, and then it is.
  await eventually(async () => {
    await leave(house, key)
    return counters(house).length === 1
  }, 15_000)
  const before = (
    await eventually(() => {
      const found = house.rows()
      expect(engine.requests.length).toBe(found.length)
      return found
    }, 15_000)
  ).length
  process.kill(counters(house)[0]!, 'SIGSTOP')
  const stopped = counters(house)[0]!
  await leave(house, key)
  await engine.hangUp(before)
  await house.killTree()
  process.kill(stopped, 'SIGCONT')
  // Its worker is gone, and so it goes.
  await eventually(() => !alive(stopped), 5_000)

  await using again = await startHouse({ config: config(engine.url), data })
  const recovered = (await again.rowsReach(before + 1, 10_000)).at(-1)!
  expect(recovered).toMatchObject({
    ...{ ending: 'recovered', completion_tokens: WORDS.length, prompt_tokens: 2, usage_source: 'estimated' },
    charge_nanodollars: 2 * 2_000 + WORDS.length * 8_000,
  })
})

const alive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false // No such process.
  }
}
