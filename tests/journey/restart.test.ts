import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse } from '../kit/house.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { json, never, WHOLE } from '../kit/script.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { call, houseConfig, marked, markedEngine } from '../crash/traffic.ts'

setDefaultTimeout(60_000)

test('C52: CRLF, a byte-order mark, a key that ends in LF, a value with $: the engine sees the exact key', async () => {
  const answers = [json(200, WHOLE('hi', 5, 1))]
  await using plain = startHostileEngine({ answers })
  await using dollar = startHostileEngine({ answers })
  await using written = startHostileEngine({ answers })
  await using fallback = startHostileEngine({ answers })
  const text = [
    '\uFEFFengines:',
    `  - { name: plain, url: "${plain.url}", key: "\${K_LF}" }`,
    `  - { name: dollar, url: "${dollar.url}", key: "\${K_DOLLAR}" }`,
    `  - { name: written, url: "${written.url}", key: sk-a$$b }`,
    `  - { name: fallback, url: "${fallback.url}", key: "\${K_MISSING:-sk-x}" }`,
    'models:',
    ...['plain', 'dollar', 'written', 'fallback'].map(
      (name) => `  - { name: ${name}, free: true, targets: [{ engine: ${name} }] }`,
    ),
    'tenants: [{ name: acme }]',
    '',
  ].join('\r\n')
  await using house = await startHouse({ text, env: { K_LF: 'sk-file-123\n', K_DOLLAR: 'sk-a$b${X}\r\n' } })
  const key = await house.key('acme')
  const seen = async (model: string, engine: { requests: { header(name: string): string | undefined }[] }) => {
    const answer = await house.post(
      '/v1/chat/completions',
      { model, messages: [{ role: 'user', content: 'hi' }] },
      `${key}`,
    )
    expect(answer.status).toBe(200)
    return engine.requests.at(-1)!.header('authorization')
  }
  const expected: Record<string, string> = {
    plain: 'Bearer sk-file-123',
    dollar: 'Bearer sk-a$b${X}',
    written: 'Bearer sk-a$b',
    fallback: 'Bearer sk-x',
  }
  const engines = { plain, dollar, written, fallback }
  for (const [name, engine] of Object.entries(engines)) expect(await seen(name, engine)).toBe(expected[name]!)
  // The same after a reload.
  house.kill('SIGHUP')
  await eventually(() => house.logged('configuration_swapped').length === 1)
  for (const [name, engine] of Object.entries(engines)) expect(await seen(name, engine)).toBe(expected[name]!)
  expect(await house.stop()).toBe(0)
})

test('C28: an idle house asks for no completion, however often it is asked how it is', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const until = performance.now() + 2_000
  let asked = 0
  while (performance.now() < until) {
    const answers = await Promise.all(
      [`${house.url}/health`, `${house.ops_url}/ready`, `${house.ops_url}/live`, `${house.ops_url}/metrics`].map(
        (url) => fetch(url),
      ),
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    await Promise.all(answers.map((answer) => answer.text()))
    asked += 1
    await Bun.sleep(50)
  }
  expect(asked).toBeGreaterThan(20)
  expect(engine.requests).toEqual([])
  expect(engine.probes.filter(({ method }) => method !== 'GET')).toEqual([])
  expect(await house.stop()).toBe(0)
})

test('a tenant of the admin API keeps its limits after a restart, a reload and the death of the control process', async () => {
  await using engine = startHostileEngine({
    answers: (request) => (request.text().includes('hold') ? [never] : json(200, WHOLE('hi', 5, 1))),
  })
  using folder = tempFolder('weir-tenant')
  const settings = { config: houseConfig(engine.url), data: `${folder.path}/data` }
  let key: string
  const limited = async (url: string) => {
    const leave = new AbortController()
    const held = fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: marked('hold', true),
      signal: leave.signal,
    }).catch(() => undefined)
    await eventually(() => engine.calls.now === 1)
    const second = await call(url, key, marked(`second-${performance.now()}`, false))
    leave.abort()
    await held
    await eventually(() => engine.calls.now === 0)
    return second.status
  }
  {
    await using house = await startHouse(settings)
    const made = await house.admin('POST', 'tenants', { name: 'late', limits: { concurrent: 1 } })
    expect(made.status).toBe(201)
    key = await house.key('late')
    await eventually(() => house.logged('configuration_swapped').length > 0)
    expect(await limited(house.url)).toBe(429)
    house.kill('SIGHUP')
    await eventually(() => house.logged('configuration_swapped').length > 1)
    expect(await limited(house.url)).toBe(429)
    const [control] = house.pids('control')
    process.kill(control!, 'SIGKILL')
    await eventually(async () => {
      expect(house.pids('control')).not.toContain(control!)
      expect((await house.admin('GET', 'tenants/late')).status).toBe(200)
    }, 5_000)
    // It says again what it knows; nothing is new, so nothing is swapped.
    expect(house.logged('configuration_swapped')).toHaveLength(2)
    expect(await limited(house.url)).toBe(429)
    process.kill(house.pids('worker')[0]!, 'SIGKILL')
    await eventually(async () => (await fetch(`${house.url}/health`)).status === 200, 3_000)
    await Bun.sleep(300)
    expect(await limited(house.url)).toBe(429)
    expect(await house.stop()).toBe(0)
  }
  await using again = await startHouse(settings)
  expect(await limited(again.url)).toBe(429)
  expect(await again.stop()).toBe(0)
})

test('a row is there soon after its answer', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const key = await house.key('acme')
  const lags_ms: number[] = []
  for (let n = 0; n < 60; n++) {
    const { status } = await call(house.url, key, marked(`lag-${n}`, n % 2 === 0, 3, 1))
    expect(status).toBe(200)
    const answered_at = performance.now()
    while (house.rows().length <= n && performance.now() - answered_at < 2_000) await Bun.sleep(1)
    lags_ms.push(performance.now() - answered_at)
    // Idle times of every length, so that the accountant is met in every mood.
    await Bun.sleep((n * 7) % 60)
  }
  lags_ms.sort((a, b) => a - b)
  const at = (share: number) => lags_ms[Math.floor(share * (lags_ms.length - 1))]!.toFixed(1)
  console.log(`row after answer, ms: p50 ${at(0.5)}, p90 ${at(0.9)}, p99 ${at(0.99)}, max ${at(1)}`)
  expect(lags_ms.at(-1)!).toBeLessThan(2_000)
  expect(await house.stop()).toBe(0)
})
