import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse } from '../kit/house.ts'
import { CH, D, never, script, sse200 } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

test('a stream that a second engine gives is cut by the drain like any other: nobody else is asked', async () => {
  await using one = startHostileEngine({ answers: [[never]] })
  await using two = startHostileEngine({ answers: [script(sse200, D(CH({ content: 'sec' })), never)] })
  await using three = startHostileEngine({ answers: [script(sse200, D(CH({ content: 'third' })), never)] })
  const quiet = { probe_ms: 0, scrape_ms: 0 }
  await using house = await startHouse({
    workers: 1,
    config: {
      server: { grace_ms: 600 },
      engines: [one, two, three].map(({ url }, n) => ({ name: `e${n}`, url, ...quiet })),
      models: [
        {
          name: 'm1',
          free: true,
          strategy: 'weighted',
          targets: [
            { engine: 'e0', weight: 100000 },
            { engine: 'e1', weight: 1000 },
            { engine: 'e2', weight: 1 },
          ],
          hedge: { after_ms: 100 },
        },
      ],
      tenants: [{ name: 'acme' }],
    },
  })
  const key = await house.key('acme')
  const response = await house.post(
    '/v1/chat/completions',
    { model: 'm1', messages: [{ role: 'user', content: 'hi' }], stream: true },
    key,
  )
  await eventually(() => two.requests.length === 1)
  await Bun.sleep(200)
  house.kill('SIGTERM')
  const text = await response.text().catch((cause: unknown) => `cut: ${String(cause)}`)
  expect(await house.exited).toBe(0)
  expect(text).toContain('"code":"draining"')
  expect(three.requests.length).toBe(0)
  expect(house.rows()).toMatchObject([{ ending: 'cut_by_engine', failure: 'draining' }])
})
