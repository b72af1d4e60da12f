import { afterAll, describe, expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { printFault } from '../../src/config/faults.ts'
import { checkConfig, type ConfigSource, loadConfig } from '../../src/config/load.ts'
import type { Config } from '../../src/config/schema.ts'
import { timeoutsOf } from '../../src/config/schema.ts'
import { config_bytes_max } from '../../src/config/source.ts'
import { sample } from './sample.ts'

const folder = mkdtempSync(join(tmpdir(), 'weir-config-'))
afterAll(() => rmSync(folder, { recursive: true }))

const fileOf = (name: string, content: string | Uint8Array): string => {
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

const good = (from: Partial<ConfigSource>): Config => {
  const result = loadConfig({ env: {}, ...from })
  if ('faults' in result) throw new Error(result.faults.map(printFault).join('\n'))
  return result.config
}

const lines = (from: Partial<ConfigSource>): string[] => {
  const result = loadConfig({ env: {}, ...from })
  return 'faults' in result ? result.faults.map(printFault) : []
}

const engine = (key: string) => `engines:\n  - name: a\n    url: http://h\n    key: ${key}\n`
const keyOf = (text: string, env: Record<string, string> = {}) => good({ text, env }).engines[0]!.key

test('everything is at its default where nothing is written', () => {
  const config = good({ text: '' })
  expect(config).toMatchObject({
    server: { port: 8080, host: '0.0.0.0', ops_port: 9090, ops_host: '127.0.0.1', data: './data', workers: 'auto' },
    ledger: { durability: 'standard', sync_ms: 50, journal_keep_ms: 3_600_000 },
    audit: {},
    cors: { origins: [] },
    timeouts: { connect_ms: 5_000, total_ms: 3_600_000 },
    engines: [],
    models: [],
    tenants: [],
  })
})

test.each([
  ['', 'nothing'],
  ['\uFEFF', 'a byte-order mark'],
  ['\r\n \r\n', 'blank lines'],
  ['# only a comment\n', 'a comment'],
  ['---\n', 'a document mark'],
  ['~', 'null'],
  ['{}', 'an empty mapping'],
  ['server:\nledger:\naudit:\ncors: ~\ntimeouts:\nengines:\nmodels:\ntenants:\n', 'empty sections'],
])('%p is the empty configuration (%s)', (text) => {
  expect(good({ text })).toEqual(good({ text: '' }))
})

test('a configuration that writes everything is kept as written, and completed', () => {
  const text = JSON.stringify(sample())
  const config = good({ text })
  expect(config).toMatchObject(sample() as object)
  expect(config.engines[1]).toEqual({
    name: 'b',
    url: 'https://engine.example',
    ca: sample().engines[1]!.ca!,
    dialect: 'openai',
    capacity: 256,
    can: [],
    on_disconnect: 'cancel',
    idle_ms: 4_000,
    probe_ms: 2_000,
    scrape_ms: 1_000,
  })
  expect(config.models[1]!.targets[0]!.weight).toBe(1)
})

test('the example of the documentation is valid', () => {
  const text = [
    'engines:',
    '  - name: vllm-a',
    '    url: http://10.0.0.5:8000/v1',
    '    dialect: openai            # openai | anthropic | json',
    '    key: ${VLLM_KEY}           # ${NAME}, ${NAME:-default}, $$ for a literal $',
    '    capacity: 256',
    '    can: [prefix_continuation, continuous_usage]',
    'models:',
    '  - name: llama-3.1-8b',
    '    targets:',
    '      - { engine: vllm-a, model: meta-llama/Llama-3.1-8B-Instruct, weight: 1 }',
    '    price: { input: "0.20", cached_input: "0.02", output: "0.60" }',
    'tenants:',
    '  - name: acme',
    '    budgets: [{ usd: "100.00", per: month, timezone: Asia/Seoul }]',
    '    limits: { requests_per_minute: 600, tokens_per_minute: 200000, concurrent: 50 }',
    '    models: [llama-3.1-8b]',
  ].join('\n')
  expect(good({ text, env: { VLLM_KEY: 'sk-1' } }).engines[0]!.key).toBe('sk-1')
})

test('a model has its own timeouts, and the house’s where it names none', () => {
  const text =
    'timeouts: {connect_ms: 77}\nengines: [{name: e, url: "http://h"}]\n' +
    'models: [{name: m, free: true, targets: [{engine: e}], timeouts: {total_ms: 9}}]'
  const config = good({ text })
  expect(config.models[0]!.timeouts).toEqual({ total_ms: 9 })
  expect(timeoutsOf(config, config.models[0]!)).toEqual({ ...config.timeouts, connect_ms: 77, total_ms: 9 })
})

describe('line ends, byte-order marks and secrets from variables', () => {
  const hex = (text: string | undefined) => Buffer.from(text ?? '').toString('hex')

  test('a file with CRLF and a byte-order mark', () => {
    const file = fileOf('crlf.yaml', `\uFEFF${engine('sk-crlf')}`.replaceAll('\n', '\r\n'))
    expect(hex(good({ file }).engines[0]!.key)).toBe(hex('sk-crlf'))
  })

  test.each([
    ['${K}', { K: 'sk-a\n' }, 'sk-a'],
    ['${K}', { K: 'sk-a\r' }, 'sk-a'],
    ['${K}', { K: '\r\n sk-a \t\r\n' }, 'sk-a'],
    ['${K}', { K: 'sk-a$b' }, 'sk-a$b'],
    ['${K}', { K: 'sk-${OTHER}$$' }, 'sk-${OTHER}$$'],
    ['${MISSING:-x}', {}, 'x'],
    ['"sk-a\\r\\n"', {}, 'sk-a'],
    ['sk-$$a$b', {}, 'sk-$a$b'],
  ] as [string, Record<string, string>, string][])('key: %s with %p is %p', (key, env, value) => {
    expect(hex(keyOf(engine(key), env))).toBe(hex(value))
  })

  test('a missing variable is named, with its path', () => {
    expect(lines({ text: engine('${MISSING}') })).toEqual([
      'engines[0].key: the variable MISSING is not set; set it, or write ${MISSING:-default}',
    ])
  })

  test('the same reference in a nested list', () => {
    const text = engine('k') + 'models: [{name: m, free: true, targets: [{engine: "${E}", model: "org/${E}"}]}]'
    expect(good({ text, env: { E: 'a\n' } }).models[0]!.targets).toEqual([{ engine: 'a', model: 'org/a', weight: 1 }])
  })

  test('the same file read again after the variable changed', () => {
    const file = fileOf('reload.yaml', engine('${K}'))
    expect(good({ file, env: { K: 'one\r\n' } }).engines[0]!.key).toBe('one')
    expect(good({ file, env: { K: 'two$$' } }).engines[0]!.key).toBe('two$$')
  })

  test('numbers and booleans may come from variables', () => {
    const env = { CAP: '7', PORT: '81\n', W: '2.5', FREE: 'true', N: '3' }
    const text =
      'server: {port: "${PORT}", workers: "${N}"}\nengines: [{name: e, url: "http://h", capacity: "${CAP}"}]\n' +
      'models: [{name: m, free: "${FREE}", targets: [{engine: e, weight: "${W}"}]}]'
    const config = good({ text, env })
    expect([config.server.port, config.server.workers, config.engines[0]!.capacity]).toEqual([81, 3, 7])
    expect([config.models[0]!.free, config.models[0]!.targets[0]!.weight]).toEqual([true, 2.5])
  })
})

describe('precedence', () => {
  const text = 'server: {port: 1, ops_port: 11, data: file, workers: 1}'
  const env = { WEIR_PORT: '2', WEIR_OPS_PORT: '12', WEIR_DATA: 'env', WEIR_WORKERS: '2' }
  const flags = { port: '3', ops_port: '13', data: 'flag', workers: '3' }
  const pick = ({ server }: Config): unknown[] => [server.port, server.ops_port, server.data, server.workers]

  test.each([
    ['default', {}, [8080, 9090, './data', 'auto']],
    ['file', { text }, [1, 11, 'file', 1]],
    ['variable beats file', { text, env }, [2, 12, 'env', 2]],
    ['variable beats default', { env }, [2, 12, 'env', 2]],
    ['flag beats all', { text, env, flags }, [3, 13, 'flag', 3]],
    ['flag beats default', { flags }, [3, 13, 'flag', 3]],
    ['each by itself', { text, env: { WEIR_PORT: '2' }, flags: { workers: 'auto' } }, [2, 11, 'file', 'auto']],
    ['empty variables set nothing', { text, env: { WEIR_PORT: '', WEIR_DATA: ' \n' } }, [1, 11, 'file', 1]],
    ['blanks around a variable go', { env: { WEIR_PORT: ' 2\r\n', WEIR_DATA: 'env\n' } }, [2, 9090, 'env', 'auto']],
    ['a variable is not interpolated', { env: { WEIR_DATA: '/x/$$/${K}' } }, [8080, 9090, '/x/$$/${K}', 'auto']],
    ['what is overridden need not be set', { text: 'server: {port: "${NO}"}', flags }, [3, 13, 'flag', 3]],
  ] as [string, Partial<ConfigSource>, unknown[]][])('%s', (_, from, expected) => {
    expect(pick(good({ text: '', ...from }))).toEqual(expected)
  })

  test.each([
    ['named by the caller', { a: 1 }, 'a.yaml', 1],
    ['named by WEIR_CONFIG', { b: 2 }, undefined, 2],
    ['the caller beats WEIR_CONFIG', { a: 1, b: 2 }, 'a.yaml', 1],
  ])('the file %s', (_, files, asked, port) => {
    for (const [name, value] of Object.entries(files)) fileOf(`${name}.yaml`, `server: {port: ${value}}`)
    const env = 'b' in files ? { WEIR_CONFIG: `${join(folder, 'b.yaml')}\n` } : {}
    expect(good({ file: asked && join(folder, asked), env }).server.port).toBe(port)
  })
})

describe('files that cannot be read', () => {
  const dir = join(folder, 'dir')
  mkdirSync(dir)
  const utf16 = fileOf('utf16.yaml', Buffer.from('\uFEFFserver: {}', 'utf16le'))
  const large = fileOf('large.yaml', `#${'x'.repeat(config_bytes_max)}`)
  const none = join(folder, 'none.yaml')

  test.each([
    [none, 'no such file; needed: a YAML file'],
    [join(large, 'x'), 'no such file; needed: a YAML file'],
    [dir, 'is a folder; needed: a YAML file'],
    [utf16, 'is not UTF-8; needed: a YAML file in UTF-8'],
    [large, 'is too large; allowed: at most 8388608 bytes'],
  ])('%s', (file, line) => {
    expect(lines({ file })).toEqual([`${file}: ${line}`])
    expect(lines({ env: { WEIR_CONFIG: file } })).toEqual([`${file}: ${line}`])
  })

  test('a file of exactly the largest size is read', () => {
    expect(lines({ file: fileOf('largest.yaml', `#${'x'.repeat(config_bytes_max - 1)}`) })).toEqual([])
  })

  test('a text beyond the largest size is refused', () => {
    expect(lines({ text: `#${'é'.repeat(config_bytes_max / 2)}` })).toHaveLength(1)
  })

  test.skipIf(process.getuid?.() === 0)('a file that may not be read', () => {
    const file = fileOf('secret.yaml', '')
    chmodSync(file, 0)
    expect(lines({ file })).toEqual([`${file}: may not be read by this user; needed: a YAML file`])
  })

  test('other faults are told with it', () => {
    expect(lines({ file: none, env: { WEIR_PROT: '1' } })).toEqual([
      'WEIR_PROT: is not a variable of Weir; did you mean WEIR_PORT?',
      `${none}: no such file; needed: a YAML file`,
    ])
  })
})

describe('config check', () => {
  test('a valid file', () => {
    const text = `\uFEFF${JSON.stringify(sample())}\r\n`
    const file = fileOf('good.yaml', text)
    // Of the bytes, as any tool tells it.
    const sha256 = new Bun.CryptoHasher('sha256').update(text).digest('hex')
    expect(checkConfig(file, {})).toEqual({
      exit_code: 0,
      lines: ['configuration is valid: 2 engines, 2 models, 1 tenant', `file: ${file}, sha256 ${sha256}`],
    })
  })

  test('every fault, one a line, exit 2', () => {
    const file = fileOf('bad.yaml', 'server: {prot: 1}\nledger: {sync_ms: 0}\n')
    expect(checkConfig(file, { WEIR_PORT: 'x' })).toEqual({
      exit_code: 2,
      lines: [
        'server.prot: is not a setting; did you mean port?',
        'WEIR_PORT: "x" is not a whole number; allowed: a whole number from 0 to 65535',
        'ledger.sync_ms: 0 is too small; allowed: a whole number from 1 to 60000',
      ],
    })
  })

  test('no file at all', () => {
    const before = process.cwd()
    process.chdir(dirWithout('weir.yaml'))
    try {
      expect(checkConfig(undefined, {})).toEqual({
        exit_code: 0,
        lines: ['configuration is valid: 0 engines, 0 models, 0 tenants; the demo engine would serve'],
      })
    } finally {
      process.chdir(before)
    }
  })

  test('weir.yaml of the folder is the default file', () => {
    const before = process.cwd()
    const here = dirWithout('weir.yaml')
    writeFileSync(join(here, 'weir.yaml'), 'server: {port: 4}')
    process.chdir(here)
    try {
      expect(good({}).server.port).toBe(4)
    } finally {
      process.chdir(before)
    }
  })

  const dirWithout = (name: string): string => mkdtempSync(join(folder, `without-${name}-`))
})
