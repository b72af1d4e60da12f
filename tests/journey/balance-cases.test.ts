import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type HostileEngine, type HostileOptions, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { CH, D, DONE, end, json, never, script, sse200, wait, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

/** CASES C25, C28, C29 and C31, fallbacks and context lengths, on one house of two workers. */

// Also when another file of the run has set another.
setDefaultTimeout(60_000)

let house: TestHouse
let key: string
const engines = new Map<string, HostileEngine>()
const config = { engines: [] as object[], models: [] as object[], tenants: [{ name: 't' }] }

const ok = (ms = 0) => script(wait(ms), json(200, WHOLE('ok', 3, 1)))
const error = (status: number) => json(status, { error: { message: 'no', type: 'server_error', code: null } })
const tooLong = json(400, {
  error: { message: 'maximum context length is 8192 tokens', code: 'context_length_exceeded' },
})

let is_busy = false

/** A stream of a token every 50 ms, for two seconds. */
const drips = () =>
  script(
    sse200,
    ...Array.from({ length: 40 }, () => [D(CH({ content: 'x' })), wait(50)]).flat(),
    D(CH({}, 'stop')),
    DONE,
    end,
  )

const engine = (name: string, options: HostileOptions, more: object = {}): void => {
  const made = startHostileEngine(options)
  engines.set(name, made)
  config.engines.push({ name, url: made.url, scrape_ms: 0, probe_ms: 0, ...more })
}
const model = (name: string, targets: readonly (string | object)[], more: object = {}): void => {
  const full = targets.map((target) => (typeof target === 'string' ? { engine: target } : target))
  config.models.push({ name, free: true, targets: full, ...more })
}

beforeAll(async () => {
  engine('c25-a', { answers: [error(500)] })
  engine('c25-b', { answers: [ok()] })
  // With weights so far apart the first is always asked first.
  model(
    'c25',
    [
      { engine: 'c25-a', weight: 1_000_000 },
      { engine: 'c25-b', weight: 0.000_001 },
    ],
    { strategy: 'weighted' },
  )
  engine('alone', { answers: [error(500)] })
  model('alone', ['alone'])
  engine('idle', { answers: [ok()] }, { probe_ms: 50, scrape_ms: 50 })
  model('idle', ['idle'])
  engine('sick', { answers: [error(500)] }, { probe_ms: 50 })
  engine('well', { answers: [ok()] })
  model('sick', ['sick', 'well'])
  engine('closes', { answers: [ok()], idle_close_ms: 300 }, { idle_ms: 250 })
  model('closes', ['closes'])
  engine('hangs', { answers: ({ connection, index }) => (connection === 0 && index > 0 ? script(never) : ok()) })
  model('hangs', ['hangs'], { timeouts: { first_byte_ms: 300 } })
  for (const name of ['p0', 'p1', 'p2', 'p3']) engine(name, { answers: [ok(10)] })
  model('prefix', ['p0', 'p1', 'p2', 'p3'], { strategy: 'prefix_affinity' })
  model('tenant', ['p0', 'p1', 'p2', 'p3'], { strategy: 'tenant_affinity' })
  model('session', ['p0', 'p1', 'p2', 'p3'], { strategy: 'session_affinity' })
  engine('down', { answers: [error(503)] })
  engine('spare', { answers: [ok()] })
  model('first', [{ engine: 'down', model: 'first-at-down' }], { fallbacks: ['second'] })
  model('second', [{ engine: 'spare', model: 'second-at-spare' }])
  engine('small', { answers: [ok()] })
  engine('large', { answers: [ok()] })
  model('context', [
    { engine: 'small', context_tokens: 100 },
    { engine: 'large', context_tokens: 100_000 },
  ])
  engine(
    'busy',
    {
      script_gets: true,
      answers: ({ target }) => (target.includes('/chat/') ? drips() : is_busy ? script(never) : json(200, {})),
    },
    { probe_ms: 50 },
  )
  model('busy', ['busy'])
  engine('refuses', { answers: [tooLong] })
  model('refuses', ['refuses'])
  house = await startHouse({ workers: 2, config })
  key = await house.key('t')
})

afterAll(async () => {
  await house[Symbol.asyncDispose]()
  for (const one of engines.values()) await one.stop()
})

const chat = (
  name: string,
  messages: readonly object[] = [{ role: 'user', content: 'hi' }],
  headers: Record<string, string> = {},
) => house.post('/v1/chat/completions', { model: name, messages, max_tokens: 8 }, key, headers)
const asked = (name: string) => engines.get(name)!.requests.length

test('C25: an engine that fails leaves the rotation, and when its bench is over exactly one call tries it', async () => {
  expect((await chat('c25')).headers.get('x-weir-engine')).toBe('c25-b')
  expect([asked('c25-a'), asked('c25-b')]).toEqual([1, 1])
  for (let call = 0; call < 20; call++) expect((await chat('c25')).status).toBe(200)
  expect([asked('c25-a'), asked('c25-b')]).toEqual([1, 21])
  await Bun.sleep(2_050)
  const later = await Promise.all(Array.from({ length: 20 }, () => chat('c25')))
  expect(later.filter(({ status }) => status !== 200)).toEqual([])
  expect(asked('c25-a')).toBe(2)
})

test('C25: the only engine of a model is never benched for ever; meanwhile the answer comes at once, with the time left', async () => {
  const first = await chat('alone')
  expect(first.status).toBe(500)
  engines.get('alone')!.play([ok()])
  const began = performance.now()
  const meanwhile = await Promise.all(Array.from({ length: 10 }, () => chat('alone')))
  const took_ms = performance.now() - began
  for (const { status, headers } of meanwhile) {
    expect(status).toBe(503)
    expect(['1', '2']).toContain(headers.get('retry-after')!)
  }
  expect(took_ms).toBeLessThan(1_000)
  await eventually(async () => (await chat('alone')).status === 200, 5_000)
  expect((await chat('alone')).status).toBe(200)
})

test('C28: an idle house calls no model, however often its health is asked for', async () => {
  const { probes } = engines.get('idle')!
  const before = probes.length
  await eventually(async () => {
    expect(await (await fetch(`${house.url}/health`)).text()).toBe('OK')
    return probes.length >= before + 20
  })
  expect(asked('idle')).toBe(0)
  // One process probes, whatever the number of workers: one probe and one scrape an interval.
  const count = probes.length
  await Bun.sleep(500)
  expect(probes.length - count).toBeLessThanOrEqual(22)
})

test('C28: probes that lie do not keep an engine in the rotation', async () => {
  const answers = await Promise.all(Array.from({ length: 40 }, () => chat('sick')))
  for (const { status, headers } of answers) expect([status, headers.get('x-weir-engine')]).toEqual([200, 'well'])
  const failed = asked('sick')
  for (let call = 0; call < 20; call++) await chat('sick')
  expect(asked('sick') - failed).toBeLessThanOrEqual(1)
  expect(engines.get('sick')!.probes.length).toBeGreaterThan(5)
})

test('an engine that leaves probes unanswered while its streams go on is busy, and stays in the rotation', async () => {
  const ask = () =>
    house.post(
      '/v1/chat/completions',
      { model: 'busy', stream: true, messages: [{ role: 'user', content: 'hi' }], max_tokens: 64 },
      key,
    )
  const first = await ask()
  expect(first.status).toBe(200)
  const text = first.text()
  is_busy = true
  const probed = () => engines.get('busy')!.requests.filter(({ method }) => method === 'GET').length
  const before = probed()
  await eventually(() => probed() >= before + 4, 5_000)
  const second = await ask()
  expect(second.status).toBe(200)
  await second.body!.cancel()
  expect(await text).toEndWith('data: [DONE]\n\n')
  // Once nothing of it comes any more it is out, for want of any sign of life.
  const health = async () => {
    const page = (await (await house.admin('GET', 'engines?limit=100')).json()) as {
      data: { name: string; health: string }[]
    }
    return page.data.find(({ name }) => name === 'busy')!.health
  }
  await eventually(async () => (await health()) === 'cooling', 5_000)
  expect((await ask()).status).toBe(503)
})

test('C29: an engine that closes idle connections costs no client an error', async () => {
  const statuses: number[] = []
  for (let call = 0; call < 14; call++) {
    statuses.push((await chat('closes')).status)
    // Around the age at which the engine closes, and at which the pool does.
    await Bun.sleep(200 + ((call * 37) % 110))
  }
  expect(statuses.filter((status) => status !== 200)).toEqual([])
})

test('C29: a connection that went silent costs no more than the limit of the first byte', async () => {
  expect((await chat('hangs')).status).toBe(200)
  const began = performance.now()
  const second = await chat('hangs')
  expect(performance.now() - began).toBeLessThan(2_000)
  expect([200, 504]).toContain(second.status)
  await eventually(async () => (await chat('hangs')).status === 200, 6_000)
})

const conversation = (nth: number, turns: number) => [
  { role: 'system', content: 'You are terse.' },
  ...Array.from({ length: turns }, (_, turn) => [
    { role: 'user', content: `conversation ${nth}, turn ${turn}` },
    ...(turn < turns - 1 ? [{ role: 'assistant', content: 'ok' }] : []),
  ]).flat(),
]

test('C31: conversations stay at their engine, over all workers', async () => {
  const homes = new Map<number, string>()
  let stayed = 0
  for (let turn = 1; turn <= 10; turn++)
    for (let nth = 0; nth < 8; nth++) {
      const name = (await chat('prefix', conversation(nth, turn))).headers.get('x-weir-engine')!
      if (homes.get(nth) === name) stayed++
      homes.set(nth, name)
    }
  expect(stayed / 72).toBeGreaterThanOrEqual(0.9)
  expect(new Set(homes.values()).size).toBeGreaterThanOrEqual(3)
})

test('C31: many calls with one prefix do not pile up at one engine', async () => {
  const names = await Promise.all(
    Array.from({ length: 40 }, async () => (await chat('prefix', conversation(99, 1))).headers.get('x-weir-engine')),
  )
  const counts = ['p0', 'p1', 'p2', 'p3'].map((name) => names.filter((one) => one === name).length)
  expect(Math.min(...counts)).toBeGreaterThan(0)
  expect(Math.max(...counts)).toBeLessThanOrEqual(20)
})

test('tenant and session stay at one engine', async () => {
  const engineOf = async (name: string, headers = {}) =>
    (await chat(name, [{ role: 'user', content: String(performance.now()) }], headers)).headers.get('x-weir-engine')!
  const tenant = new Set<string>()
  for (let call = 0; call < 50; call++) tenant.add(await engineOf('tenant'))
  expect(tenant.size).toBe(1)
  const all = new Set<string>()
  // Where a new session goes depends on load as well: six of them fall on two engines now and then.
  for (let nth = 0; nth < 24; nth++) {
    const session = new Set<string>()
    for (let call = 0; call < 5; call++) session.add(await engineOf('session', { 'x-weir-session': `s${nth}` }))
    expect(session.size).toBe(1)
    all.add([...session][0]!)
  }
  expect(all.size).toBeGreaterThanOrEqual(3)
})

test('a model that nobody can answer falls back to the next, and the header says what answered', async () => {
  for (let call = 0; call < 5; call++) {
    const { status, headers } = await chat('first')
    expect([status, headers.get('x-weir-engine'), headers.get('x-weir-model')]).toEqual([
      200,
      'spare',
      'second-at-spare',
    ])
  }
  // Once benched, the engine that is down is not asked again: the fallback is the first choice.
  expect(asked('down')).toBe(1)
})

test('a prompt that is surely too long for one engine goes to the larger one', async () => {
  const long = [{ role: 'user', content: 'word '.repeat(2_000) }]
  for (let call = 0; call < 10; call++) expect((await chat('context', long)).headers.get('x-weir-engine')).toBe('large')
  // At once, so that load spreads them whatever the engines' latencies were.
  const short = await Promise.all(Array.from({ length: 40 }, () => chat('context')))
  const seen = new Set(short.map((answer) => answer.headers.get('x-weir-engine')!))
  expect(seen.size).toBe(2)
})

test('a context that an engine finds too long is passed on, once, and is no fault of the engine', async () => {
  const { status, headers } = await chat('refuses')
  expect([status, headers.get('x-weir-engine')]).toEqual([400, 'refuses'])
  expect(asked('refuses')).toBe(1)
  engines.get('refuses')!.play([ok()])
  expect((await chat('refuses')).status).toBe(200)
})

test('a decision is explained in words, once the call is in the ledger', async () => {
  const response = await chat('sick')
  const id = response.headers.get('x-weir-call-id')!
  const explain = async () => {
    const answer = await house.admin('GET', `calls/${id}/explain`)
    expect(answer.status).toBe(200)
    return (await answer.json()) as { words: string[]; decision: { picks: { engine: string }[] } | null }
  }
  const { words, decision } = await eventually(explain, 5_000)
  expect(decision?.picks.at(-1)?.engine).toBe('well')
  expect(words.join(' ')).toContain('well was chosen')
  expect((await house.admin('GET', 'calls/call_none/explain')).status).toBe(404)
})

test('after all of this no engine holds a call or a token in the shared table', async () => {
  const views = (await (await house.admin('GET', 'engines?limit=100')).json()) as {
    data: { name: string; in_flight: number; tokens_in_flight: number }[]
  }
  for (const view of views.data) expect([view.name, view.in_flight, view.tokens_in_flight]).toEqual([view.name, 0, 0])
})
