import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { ADMIN_TOKEN, startHouse } from '../kit/house.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { json, WHOLE } from '../kit/script.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const MAIN = path.resolve(import.meta.dir, '../../src/main.ts')

/** Runs the command line to its end. */
const weir = async (argv: readonly string[], cwd: string, env: Record<string, string> = {}) => {
  const child = Bun.spawn({
    cmd: [process.execPath, MAIN, ...argv],
    cwd,
    env: { ...process.env, ...env },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), 20_000)
  const [code, out, err] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ])
  clearTimeout(timer)
  return { code, out, err }
}

test.each([
  [['--help'], 0, 'out', 'weir ledger rebuild --data DIR'],
  [['start', '-h'], 0, 'out', 'weir start [--config F]'],
  [['config', 'check', '--help'], 0, 'out', 'weir config check [--config F]'],
  [['keys', 'create', '--help'], 0, 'out', '--requests-per-minute N'],
  [['fsck', '--help'], 0, 'out', 'weir fsck --data DIR'],
  [['constructor'], 2, 'err', 'no such command: constructor'],
  [['config', 'chekc'], 2, 'err', '"chekc" is not a command; known: check'],
  [['fsck', '--dta', 'x'], 2, 'err', 'weir fsck --data DIR'],
  [['audit', 'erase-salts'], 2, 'err', '--tenant is missing'],
  [['page', 'none.json'], 1, 'err', 'none.json is not a file'],
] as const)('weir %j ends with %i', async (argv, code, where, says) => {
  using folder = tempFolder('weir-usage')
  const result = await weir(argv, folder.path)
  expect(result.code).toBe(code)
  expect(result[where]).toContain(says)
  expect(result[where === 'out' ? 'err' : 'out']).toBe('')
})

describe('refused before anything is started', () => {
  test.each([
    ['a faulty file', ['--config', 'bad.yaml'], {}, 2, 'models[0].targets[0].engine: "b" is not an engine; known: a'],
    ['a file that is not there', ['--config', 'none.yaml'], {}, 2, 'none.yaml'],
    ['an unknown flag', ['--wrokers', '2'], {}, 2, '--wrokers'],
    ['a flag without a value', ['--port'], {}, 2, '--port'],
    ['a word that is no flag', ['now'], {}, 2, 'now'],
    ['a port that is none', ['--port', '70000'], {}, 2, '--port'],
    ['a number of workers that is none', ['--workers', 'many'], {}, 2, '--workers'],
    ['more workers than the shared table has columns for', ['--workers', '31'], {}, 2, '30'],
    ['a variable that means nothing', [], { WEIR_WROKERS: '2' }, 2, 'WEIR_WROKERS'],
  ] as const)('%s: exit 2, said on stderr, no data folder', async (_says, argv, env, code, says) => {
    using folder = tempFolder('weir-start')
    writeFileSync(
      `${folder.path}/bad.yaml`,
      'engines: [{name: a, url: "http://127.0.0.1:1"}]\nmodels: [{name: m, free: true, targets: [{engine: b}]}]\n',
    )
    const result = await weir(['start', '--data', 'data', ...argv], folder.path, env)
    expect(result).toMatchObject({ code, out: '' })
    expect(result.err).toContain(says)
    expect(existsSync(`${folder.path}/data`)).toBe(false)
  })

  test('every fault at once', async () => {
    using folder = tempFolder('weir-start')
    writeFileSync(`${folder.path}/weir.yaml`, 'server: {port: x, grace_ms: -1}\nengins: []\n')
    const { code, err } = await weir(['start', '--data', 'data'], folder.path)
    expect(code).toBe(2)
    for (const each of ['server.port', 'server.grace_ms', 'engins']) expect(err).toContain(each)
    expect(existsSync(`${folder.path}/data`)).toBe(false)
  })

  test('config check: 0 and a summary on stdout, or 2 and every fault on stderr; nothing is made', async () => {
    using folder = tempFolder('weir-start')
    writeFileSync(`${folder.path}/good.yaml`, 'tenants: [{name: t}]\n')
    writeFileSync(`${folder.path}/bad.yaml`, 'tenants: [{name: t, limit: {}}]\nengins: []\n')
    const good = await weir(['config', 'check', '--config', 'good.yaml'], folder.path)
    expect(good).toMatchObject({ code: 0, err: '' })
    expect(good.out).toContain('1 tenant')
    const bad = await weir(['config', 'check', '--config', 'bad.yaml'], folder.path)
    expect(bad).toMatchObject({ code: 2, out: '' })
    expect(bad.err.trim().split('\n').length).toBe(2)
    expect(await weir(['config', 'check', '--wrong', 'x'], folder.path)).toMatchObject({ code: 2, out: '' })
    expect(await weir(['config', 'chekc'], folder.path)).toMatchObject({ code: 2, out: '' })
    expect(await weir(['strat'], folder.path)).toMatchObject({ code: 2, out: '' })
    expect(readdirSync(folder.path).toSorted()).toEqual(['bad.yaml', 'good.yaml'])
  })

  test('a port in use: exit 1 and one line that names it, also when its owner would share it', async () => {
    using folder = tempFolder('weir-start')
    for (const reusePort of [false, true]) {
      const owner = Bun.serve({ port: 0, hostname: '127.0.0.1', reusePort, fetch: () => new Response('mine') })
      for (const flags of [
        ['--port', String(owner.port), '--ops-port', '0'],
        ['--port', '0', '--ops-port', String(owner.port)],
      ]) {
        const { code, out, err } = await weir(['start', '--data', 'data', ...flags], folder.path)
        expect({ code, out }).toEqual({ code: 1, out: '' })
        expect(err.trim().split('\n').length).toBe(1)
        expect(err).toContain(`port ${owner.port}`)
        expect(err).toContain('in use')
      }
      await owner.stop(true)
    }
  })

  test('a data folder that cannot be made: exit 1 and a line that names it', async () => {
    using folder = tempFolder('weir-start')
    writeFileSync(`${folder.path}/file`, '')
    const { code, out, err } = await weir(
      ['start', '--data', 'file/data', '--port', '0', '--ops-port', '0'],
      folder.path,
    )
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain('file/data')
  })
})

test('two houses on one data folder: the second is refused and names the first, which serves on', async () => {
  await using house = await startHouse({ workers: 1 })
  const flags = ['--port', '0', '--ops-port', '0', '--data', house.data]
  // Several at once, so that a race would show.
  const others = await Promise.all(Array.from({ length: 3 }, () => weir(['start', ...flags], path.dirname(house.data))))
  for (const { code, out, err } of others) {
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain(`belongs to a running house, pid ${house.pid}`)
  }
  expect(await (await fetch(`${house.url}/health`)).text()).toBe('OK')
  expect(await house.stop()).toBe(0)
  // Free again at once, and a lock without an owner is no obstacle.
  await using next = await startHouse({ data: house.data })
  await next.killTree()
  await using last = await startHouse({ data: house.data })
  expect(await last.stop()).toBe(0)
})

describe('what a house says', () => {
  test('the ready line and nothing else on stdout; JSON lines on stderr; secrets told once, and then nowhere', async () => {
    using folder = tempFolder('weir-says')
    const data = `${folder.path}/data`
    const engine_key = 'sk-engine-7f3a9c1e5b'
    const answers = [
      json(200, WHOLE('hi', 5, 1)),
      json(500, { error: { message: 'broken' } }),
      json(401, { error: { message: `bad key ${engine_key}` } }),
    ]
    await using engine = startHostileEngine({ answers })
    const config = {
      engines: [{ name: 'e1', url: engine.url, key: '${ENGINE_KEY}' }],
      models: [{ name: 'm1', free: true, targets: [{ engine: 'e1' }] }],
      tenants: [{ name: 'acme' }],
    }
    const secrets = [ADMIN_TOKEN, engine_key]
    await using house = await startHouse({ config, workers: 2, data, env: { ENGINE_KEY: engine_key } })
    const client_key = await house.key('acme')
    secrets.push(client_key)
    const body = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }
    for (let n = 0; n < 4; n++) {
      const answer = await house.post('/v1/chat/completions', body, client_key)
      expect(await answer.text()).not.toContain(client_key)
    }
    await house.post('/v1/chat/completions', body, `${client_key}x`)
    writeFileSync(
      house.config_file,
      JSON.stringify({ ...config, engines: [{ ...config.engines[0], key: 'with\u0001control' }] }),
    )
    house.kill('SIGHUP')
    process.kill(house.pids('worker')[0]!, 'SIGKILL')
    process.kill(house.pids('control')[0]!, 'SIGKILL')
    await Bun.sleep(1_000)

    for (const address of ['config', 'engines', 'keys', 'tenants', 'calls', 'log', 'models']) {
      const answer = await house.admin('GET', address)
      const text = await answer.text()
      expect(`${address} ${secrets.filter((secret) => text.includes(secret))}`).toBe(`${address} `)
    }
    expect(await house.stop()).toBe(0)

    expect(house.out()).toBe(`weir ready port=${house.port} ops=${house.ops} workers=2 pid=${house.pid}\n`)
    const lines = house.log().trim().split('\n')
    for (const line of lines)
      expect(JSON.parse(line)).toMatchObject({ level: expect.any(String), event: expect.any(String) })
    expect(lines.length).toBeGreaterThan(3)
    expect(secrets.filter((secret) => house.log().includes(secret))).toEqual([])
    expect(house.log()).not.toContain('control\\u0001')
    expect(filesWith(data, secrets)).toEqual([])
  })

  test('the generated admin token and demo key: a file of mode 0600, a line said once, no other trace', async () => {
    using folder = tempFolder('weir-says')
    const data = `${folder.path}/data`
    const env = { WEIR_ADMIN_TOKEN: '', WEIR_DEMO_KEY: '' }
    let demo_key: string
    {
      await using house = await startHouse({ data, env })
      const told = house.logged('told_once')
      expect(told.length).toBe(1)
      demo_key = /demo key \(shown once\): (\S+)$/.exec(told[0]!['says'])![1]!
      const token = readFileSync(`${data}/admin-token`, 'utf8').trim()
      expect(statSync(`${data}/admin-token`).mode & 0o777).toBe(0o600)
      const authorization = (secret: string) => ({ headers: { authorization: `Bearer ${secret}` } })
      expect((await fetch(`${house.ops_url}/admin/keys`, authorization(token))).status).toBe(200)
      expect((await fetch(`${house.url}/v1/models`, authorization(demo_key))).status).toBe(200)
      // A control process that is replaced knows both and says neither again.
      process.kill(house.pids('control')[0]!, 'SIGKILL')
      await Bun.sleep(800)
      expect((await fetch(`${house.ops_url}/admin/keys`, authorization(token))).status).toBe(200)
      expect(await house.stop()).toBe(0)
      expect(house.log().split(demo_key).length).toBe(2)
      expect(house.log()).not.toContain(token)
      expect(filesWith(data, [demo_key])).toEqual([])
      expect(filesWith(data, [token])).toEqual(['admin-token'])
    }
    await using again = await startHouse({ data, env })
    expect(again.logged('told_once')).toEqual([])
    expect((await fetch(`${again.url}/v1/models`, { headers: { authorization: `Bearer ${demo_key}` } })).status).toBe(
      200,
    )
    expect(await again.stop()).toBe(0)
    expect(again.log()).not.toContain(demo_key)
    for (const [name, mode] of modesOf(data)) expect(`${name} ${(mode & 0o077).toString(8)}`).toBe(`${name} 0`)
  })
})

const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => statSync(`${folder}/${name}`).isFile())

/** Files of a folder that contain one of the texts. */
const filesWith = (folder: string, texts: readonly string[]): string[] =>
  filesOf(folder).filter((name) => {
    const bytes = readFileSync(`${folder}/${name}`)
    return texts.some((text) => bytes.includes(text))
  })

const modesOf = (folder: string): [string, number][] =>
  filesOf(folder).map((name) => [name, statSync(`${folder}/${name}`).mode])
