import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse } from '../kit/house.ts'
import { CH, D, never, script, sse200, wait } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

test('a worker dies after a first engine won against a hedge: the engine that answered is in the row, at its price', async () => {
  const word = (text: string) => D(CH({ content: text }))
  // Tokens come for longer than it takes until a stream is written down.
  const long = Array.from({ length: 28 }, (_, n) => [word(`w${n} `), wait(100)]).flat()
  await using early = startHostileEngine({ answers: [script(wait(300), sse200, word('one'), never)] })
  await using first = startHostileEngine({ answers: [script(wait(300), sse200, ...long, never)] })
  await using dear = startHostileEngine({ answers: [[never]] })
  const quiet = { probe_ms: 0, scrape_ms: 0 }
  const cheap = { price: { input: '1.00', output: '2.00' }, fallbacks: ['dear'], hedge: { after_ms: 100 } }
  await using house = await startHouse({
    workers: 1,
    config: {
      engines: [
        { name: 'early', url: early.url, ...quiet },
        { name: 'first', url: first.url, ...quiet },
        { name: 'dear', url: dear.url, ...quiet },
      ],
      models: [
        { name: 'm-early', targets: [{ engine: 'early' }], ...cheap },
        { name: 'm-long', targets: [{ engine: 'first', model: 'small' }], ...cheap },
        { name: 'dear', targets: [{ engine: 'dear' }], price: { input: '30.00', output: '60.00' } },
      ],
      tenants: [{ name: 'acme' }],
    },
  })
  const key = await house.key('acme')
  const ask = (model: string) =>
    house.post(
      '/v1/chat/completions',
      { model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 50, stream: true },
      key,
    )
  const answers = await Promise.all([ask('m-long'), ask('m-early')])
  const read = answers.map((answer) => answer.text().catch((cause: unknown) => `cut: ${String(cause)}`))
  await eventually(() => expect(dear.requests).toHaveLength(2))
  await Bun.sleep(2_800)
  for (const pid of house.pids('worker')) process.kill(pid, 'SIGKILL')
  await Promise.all(read)
  const rows = await house.rowsReach(2, 15_000)
  const of = (model: string) => rows.find((row) => row['asked_model'] === model)!
  const long_row = of('m-long')
  expect(long_row).toMatchObject({
    ending: 'recovered',
    engine: 'first',
    engine_model: 'small',
    model: 'm-long',
    attempts: 2,
    price_version: 1,
  })
  const [prompt, completion] = [Number(long_row['prompt_tokens']), Number(long_row['completion_tokens'])]
  expect(completion).toBeGreaterThan(5)
  expect(long_row['charge_nanodollars']).toBe(prompt * 1_000 + completion * 2_000)
  // Nothing of it was written down yet but who won.
  expect(of('m-early')).toMatchObject({
    ending: 'recovered',
    engine: 'early',
    model: 'm-early',
    attempts: 2,
    charge_nanodollars: 0,
  })
})
