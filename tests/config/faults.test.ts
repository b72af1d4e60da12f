import { describe, expect, test } from 'bun:test'
import { FaultList, faults_max, join, nearest, printFault, quoted } from '../../src/config/faults.ts'
import { loadConfig } from '../../src/config/load.ts'
import type { Flags } from '../../src/config/variables.ts'

type Env = Record<string, string>

const lines = (text: string, env: Env = {}, flags: Flags = {}): string[] => {
  const result = loadConfig({ text, env, flags })
  return 'faults' in result ? result.faults.map(printFault) : []
}

const e = 'engines: [{name: e, url: "http://h"}]\n'
const model = (rest: string, name = 'm') => `{name: ${name}, targets: [{engine: e}], ${rest}}`
const models = (...list: string[]) => `${e}models: [${list.join(', ')}]\n`
const engine = (rest: string) => `engines: [{name: e, url: "http://h", ${rest}}]`
const url = (text: string) => `engines: [{name: e, url: ${JSON.stringify(text)}}]`
const tenant = (rest: string) => `tenants: [{name: t, ${rest}}]`
const free = 'free: true'

const port = 'allowed: a whole number from 0 to 65535'
const name_allowed = 'letters, digits and . _ : / @ -, beginning with a letter or digit, at most 128'
const usd_allowed = 'allowed: a decimal in quotes such as "12.50", at most 9 digits before the point and 9 after'
const price_allowed = 'allowed: a decimal in quotes such as "0.20", at most 6 digits before the point and 6 after'
const key_allowed = 'allowed: printable ASCII, 1 to 8192 characters'
const url_allowed = 'http://… or https://…, without user name, password and #'
const known_sections = 'known: server, ledger, audit, idempotency, jobs, cors, timeouts, engines, models, tenants'
const end = 'allowed: fallbacks that end'

describe('one fault, one line', () => {
  test.each([
    // unknown keys
    ['sevrer: {}', 'sevrer: is not a setting; did you mean server?'],
    ['server: {prot: 1}', 'server.prot: is not a setting; did you mean port?'],
    ['server: {PORT: 1}', 'server.PORT: is not a setting; did you mean port?'],
    [engine('api_key: sk-hidden'), 'engines[0].api_key: is not a setting; did you mean key?'],
    ['zzzzzz: 1', `zzzzzz: is not a setting; ${known_sections}`],
    ['"odd key": 1', `["odd key"]: is not a setting; ${known_sections}`],
    ['__proto__: 1', `__proto__: is not a setting; ${known_sections}`],
    ['constructor: 1', `constructor: is not a setting; ${known_sections}`],
    // types
    ['- a', 'configuration: a list is not a mapping; allowed: a mapping'],
    ['5', 'configuration: 5 is not a mapping; allowed: a mapping'],
    ['server: 5', 'server: 5 is not a mapping; allowed: a mapping'],
    ['engines: {}', 'engines: a mapping is not a list; allowed: a list of at most 256 entries'],
    ['engines: [x]', 'engines[0]: "x" is not a mapping; allowed: a mapping'],
    ['server: {port: "80"}', `server.port: "80" is not a whole number; ${port}`],
    ['server: {port: 80.5}', `server.port: 80.5 is not a whole number; ${port}`],
    ['server: {port: .nan}', `server.port: NaN is not a whole number; ${port}`],
    ['server: {port: true}', `server.port: true is not a whole number; ${port}`],
    ['server: {port: [1]}', `server.port: a list is not a whole number; ${port}`],
    ['server: {port: }', `server.port: holds nothing; ${port}`],
    ['server: {data: 7}', 'server.data: 7 is not text; allowed: text of 1 to 1024 characters'],
    [models(model('free: 1')), 'models[0].free: 1 is not true or false; allowed: true or false'],
    [engine('dialect: anthropic'), 'engines[0].dialect: "anthropic" is not one of the choices; allowed: openai'],
    [
      engine('can: [fly]'),
      'engines[0].can[0]: "fly" is not one of the choices; allowed: prefix_continuation, continuous_usage or no_stream_options',
    ],
    [
      'server: {workers: some}',
      'server.workers: "some" is not one of the choices; allowed: auto or a whole number from 1 to 30',
    ],
    [
      'server: {workers: 33}',
      'server.workers: 33 is not one of the choices; allowed: auto or a whole number from 1 to 30',
    ],
    // ranges
    ['server: {port: -1}', `server.port: -1 is too small; ${port}`],
    ['server: {port: 65536}', `server.port: 65536 is too large; ${port}`],
    [
      `${e}models: [{name: m, free: true, targets: [{engine: e, weight: 0}]}]`,
      'models[0].targets[0].weight: 0 is too small; allowed: a number above 0, at most 1000000',
    ],
    ['server: {data: ""}', 'server.data: is empty; allowed: text of 1 to 1024 characters'],
    [`server: {host: ${'h'.repeat(256)}}`, 'server.host: has 256 characters; allowed: text of 1 to 255 characters'],
    [
      `${e}models: [{name: m, free: true, targets: []}]`,
      'models[0].targets: has 0 entries; allowed: a list of 1 to 256 entries',
    ],
    [
      `${e}models: [{name: m, free: true, targets: }]`,
      'models[0].targets: has 0 entries; allowed: a list of 1 to 256 entries',
    ],
    // missing
    ['engines: [{name: e}]', `engines[0].url: is missing; needed: ${url_allowed}`],
    ['tenants: [{}]', `tenants[0].name: is missing; needed: ${name_allowed}`],
    [`${e}models: [{name: m, free: true}]`, 'models[0].targets: is missing; needed: a list of 1 to 256 entries'],
    // patterns
    ['tenants: [{name: "a b"}]', `tenants[0].name: "a b" is not a name; allowed: ${name_allowed}`],
    ['tenants: [{name: -a}]', `tenants[0].name: "-a" is not a name; allowed: ${name_allowed}`],
    [tenant('budgets: [{usd: "-1"}]'), `tenants[0].budgets[0].usd: "-1" is not an amount of USD; ${usd_allowed}`],
    [tenant('budgets: [{usd: 100}]'), `tenants[0].budgets[0].usd: 100 is not an amount of USD; ${usd_allowed}`],
    [tenant('budgets: [{usd: "1e3"}]'), `tenants[0].budgets[0].usd: "1e3" is not an amount of USD; ${usd_allowed}`],
    [models(model('price: {input: 0.2, output: "1"}')), `models[0].price.input: 0.2 is not a price; ${price_allowed}`],
    [
      models(model('price: {input: "0.1234567", output: "1"}')),
      `models[0].price.input: "0.1234567" is not a price; ${price_allowed}`,
    ],
    [
      'engines: [{name: e, url: "http://h", ca: x}]',
      'engines[0].ca: is of no use to an engine that is not asked over https://; allowed: an https:// address, or no ca',
    ],
    [
      'engines: [{name: e, url: "https://h", ca: x}]',
      'engines[0].ca: holds no certificate; allowed: certificates in PEM, -----BEGIN CERTIFICATE----- and so on',
    ],
    [
      'engines: [{name: e, url: "https://h", ca: "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----"}]',
      'engines[0].ca: holds as number 1 what is not a certificate; allowed: certificates in PEM, -----BEGIN CERTIFICATE----- and so on',
    ],
    // addresses
    [url('ftp://h'), `engines[0].url: "ftp://h" is not an address; allowed: ${url_allowed}`],
    [
      url('http://'),
      'engines[0].url: "http://" is not an address; allowed: http://host:port/path or https://host/path',
    ],
    [
      url('http://h:99999'),
      'engines[0].url: "http://h:99999" is not an address; allowed: http://host:port/path or https://host/path',
    ],
    [
      url('http://h /v1'),
      'engines[0].url: "http://h /v1" is not an address; allowed: http://host:port/path or https://host/path',
    ],
    [
      url('http://u:hidden@h'),
      'engines[0].url: holds a user name or password; allowed: the credential as key of the engine',
    ],
    [url('http://h/#v1'), 'engines[0].url: "http://h/#v1" holds a #; allowed: an address without #'],
    [
      url('ftp://u:hidden@h/?api_key=hidden&v=1'),
      `engines[0].url: "ftp://***@h/?api_key=***&v=1" is not an address; allowed: ${url_allowed}`,
    ],
    // characters
    [
      engine('key: "sk\\u0001hidden"'),
      `engines[0].key: holds a control character (U+0001 at position 3); ${key_allowed}`,
    ],
    [engine('key: "sk\\rhidden"'), `engines[0].key: holds a control character (U+000D at position 3); ${key_allowed}`],
    [
      engine('key: "skéhidden"'),
      `engines[0].key: holds a character outside ASCII (U+00E9 at position 3); ${key_allowed}`,
    ],
    [engine('key: ""'), `engines[0].key: is empty; ${key_allowed}`],
    [engine('key: 12345'), `engines[0].key: a number is not text; ${key_allowed}`],
    [engine('key: {a: hidden}'), `engines[0].key: a mapping is not text; ${key_allowed}`],
    [engine('key: '), `engines[0].key: holds nothing; ${key_allowed}`],
    [
      'server: {data: "a\\0b"}',
      'server.data: holds a control character (U+0000 at position 2); allowed: text of 1 to 1024 characters',
    ],
    [
      url('http://h\r\nx: y'),
      `engines[0].url: holds a control character (U+000D at position 9); allowed: ${url_allowed}`,
    ],
    // names
    [
      'engines: [{name: e, url: "http://h"}, {name: e, url: "http://h"}]',
      'engines[1].name: "e" stands twice; first: engines[0].name',
    ],
    [models(model(free), model(free)), 'models[1].name: "m" stands twice; first: models[0].name'],
    ['tenants: [{name: t}, {name: u}, {name: t}]', 'tenants[2].name: "t" stands twice; first: tenants[0].name'],
    [
      'engines: [{name: vllm-a, url: "http://h"}]\nmodels: [{name: m, free: true, targets: [{engine: vllm-b}]}]',
      'models[0].targets[0].engine: "vllm-b" is not an engine; known: vllm-a',
    ],
    [
      'models: [{name: m, free: true, targets: [{engine: a}]}]',
      'models[0].targets[0].engine: "a" is not an engine; no engine is configured',
    ],
    [
      models(model(`${free}, hedge: { percentile: 95, min_ms: 300, max_ms: 200 }`)),
      'models[0].hedge.min_ms: 300 is more than max_ms, 200; allowed: at most max_ms',
    ],
    [
      models(model(`${free}, hedge: { percentile: 30 }`)),
      'models[0].hedge.percentile: 30 is too small; allowed: a number from 50 to 99.9',
    ],
    [models(model(`${free}, fallbacks: [n]`)), 'models[0].fallbacks[0]: "n" is not a model; known: m'],
    [
      models(model(`${free}, fallbacks: [n, n]`), model(free, 'n')),
      'models[0].fallbacks[1]: "n" stands twice; first: models[0].fallbacks[0]',
    ],
    [models(model(free)) + tenant('models: [m, n]'), 'tenants[0].models[1]: "n" is not a model; known: m'],
    [e + tenant('models: [n]'), 'tenants[0].models[0]: "n" is not a model; no model is configured'],
    [tenant('models: [n]'), 'tenants[0].models[0]: "n" is not a model; known: demo, demo-embed'],
    [
      `${e}models: [{name: m, free: true, targets: [{engine: e}, {engine: e, model: m}]}]`,
      'models[0].targets[1]: is the same engine and model as models[0].targets[0]; allowed: one with the sum of the weights',
    ],
    // circles
    [models(model(`${free}, fallbacks: [m]`)), `models[0].fallbacks[0]: leads back in a circle: m → m; ${end}`],
    [
      models(
        model(`${free}, fallbacks: [b]`, 'a'),
        model(`${free}, fallbacks: [c]`, 'b'),
        model(`${free}, fallbacks: [a]`, 'c'),
      ),
      `models[2].fallbacks[0]: leads back in a circle: a → b → c → a; ${end}`,
    ],
    // money and time
    [models(model('')), 'models[0].price: is missing; needed: a price, or free: true on purpose'],
    [
      models(model('free: true, price_changes: [{from: "2026-03-01T00:00:00Z", input: "1", output: "1"}]')),
      'models[0].price_changes: stands without a price; needed: price, which they change',
    ],
    [
      models(model('price: {input: "1", output: "1"}, price_changes: [{from: "2026-03-01", input: "1", output: "1"}]')),
      'models[0].price_changes[0].from: "2026-03-01" is not a time; allowed: a time with its zone, such as 2026-03-01T00:00:00Z',
    ],
    [
      models(
        model(
          'price: {input: "1", output: "1"}, price_changes: [{from: "2026-02-30T00:00:00Z", input: "1", output: "1"}]',
        ),
      ),
      'models[0].price_changes[0].from: "2026-02-30T00:00:00Z" is in no calendar; allowed: a time since 1970',
    ],
    [
      models(
        model(
          'price: {input: "1", output: "1"}, price_changes: [{from: "2026-03-01T00:00:00Z", input: "1", output: "1"}, {from: "2026-03-01T01:00:00+01:00", input: "2", output: "1"}]',
        ),
      ),
      'models[0].price_changes[1].from: "2026-03-01T01:00:00+01:00" is not after the one before; allowed: oldest first, each once',
    ],
    [models(model('free: false')), 'models[0].price: is missing; needed: a price, or free: true on purpose'],
    [
      models(model(`${free}, price: {input: "1", output: "1"}`)),
      'models[0].free: true stands beside a price; allowed: one of the two',
    ],
    [
      tenant('budgets: [{usd: "1", timezone: Mars/Base}]'),
      'tenants[0].budgets[0].timezone: "Mars/Base" is not a time zone; allowed: an IANA name such as UTC or Asia/Seoul',
    ],
    [
      tenant('budgets: [{usd: "1", per: day}, {usd: "2", per: day, timezone: UTC}]'),
      'tenants[0].budgets[1]: is for the same window as tenants[0].budgets[0]; allowed: one budget a window',
    ],
    [
      'timeouts: {first_byte_ms: 101, total_ms: 100}',
      'timeouts.first_byte_ms: 101 is longer than the whole call may take; allowed: at most total_ms, which is 100',
    ],
    [
      models(model(`${free}, timeouts: {between_tokens_ms: 11, total_ms: 10}`)),
      'models[0].timeouts.between_tokens_ms: 11 is longer than the whole call may take; allowed: at most total_ms, which is 10',
    ],
    [
      `timeouts: {total_ms: 10}\n${models(model(`${free}, timeouts: {first_token_ms: 11}`))}`,
      'models[0].timeouts.first_token_ms: 11 is longer than the whole call may take; allowed: at most total_ms, which is 10',
    ],
    [
      'server: {port: 9090}',
      'server.ops_port: 9090 is also the port of the data plane; allowed: another port, or 0 for a free one',
    ],
  ])('%s', (text, line) => {
    expect(lines(text)).toEqual([line])
  })
})

describe('no fault', () => {
  test.each([
    [tenant('budgets: [{usd: "0"}]'), 'a budget of nothing'],
    [
      tenant('budgets: [{usd: "1"}, {usd: "1", per: day}, {usd: "1", per: day, timezone: Asia/Seoul}]'),
      'other windows',
    ],
    [tenant('models: []'), 'a tenant who may use no model'],
    [tenant('models: [demo, demo-embed], limits: {concurrent: 0}'), 'the demo’s models'],
    [models(model('price: {input: "0", output: "0"}')), 'a price of nothing'],
    [
      models(model(`${free}, fallbacks: [b, c]`, 'a'), model(`${free}, fallbacks: [c]`, 'b'), model(free, 'c')),
      'two ways to one end',
    ],
    ['timeouts: {total_ms: 1000}', 'a short call beside longer defaults'],
    [
      `timeouts: {first_byte_ms: 5000}\n${models(model(`${free}, timeouts: {total_ms: 10}`))}`,
      'a shorter call of one model',
    ],
    ['server: {port: 0, ops_port: 0}', 'two free ports'],
    ['server: {port: 1, ops_port: 1, host: 127.0.0.1, ops_host: 127.0.0.2}', 'one port on two addresses'],
    ['engines:\n  - &b {name: a, url: "http://h"}\n  - {<<: *b, name: c}\n', 'anchors and merge keys'],
    [url('http://[::1]:8000/openai/v1?api-version=2025-01-01'), 'an address with all its parts'],
    ['{"server": {"port": 1}}', 'JSON'],
  ])('%s (%s)', (text) => {
    expect(lines(text)).toEqual([])
  })
})

describe('syntax', () => {
  const bare = 'a reference stands bare inside { } or [ ]; allowed: in quotes, "${NAME}"'
  test.each([
    [
      'a: 1\r\nb: 2\r\na: 3\r\n',
      'weir.yaml line 3, column 1: the key a stands twice; allowed: each key of a mapping once',
    ],
    [
      'server: {port: 1, port: 2}',
      'weir.yaml line 1, column 19: the key port stands twice; allowed: each key of a mapping once',
    ],
    ['server:\n\tport: 1', 'weir.yaml line 2, column 1: a tab indents the line; needed: blanks'],
    ['server: {}\n---\nserver: {}', 'weir.yaml line 2, column 1: a second document begins; allowed: one document'],
    ['x: !js 1', 'weir.yaml line 1, column 4: a tag is unknown; allowed: plain values without !tags'],
    ['? [a]\n: 1', 'weir.yaml line 1, column 3: a key is a mapping or list; needed: a name'],
    [
      'key: "sk-hidden',
      'weir.yaml line 1, column 16: a character is missing; needed: a closing quote, a : after a key or a , between entries',
    ],
    [
      'x: "\\q"',
      'weir.yaml line 1, column 5: a \\ in double quotes begins no escape; needed: \\\\ for a literal \\, or single quotes',
    ],
    ['engines: [{key: ${K}}]', `weir.yaml line 1, column 18: ${bare}`],
    [
      'x: *none',
      'weir.yaml: holds an alias that is unknown or multiplies without bound; allowed: aliases of anchors above them, at most 100',
    ],
  ])('%p', (text, line) => {
    expect(lines(text)).toEqual([line])
  })

  test('aliases that multiply are refused, not expanded', () => {
    const rows = [...'bcdefghij'].map((name, index) => `${name}: &${name} [${Array(9).fill(`*${'abcdefghi'[index]}`)}]`)
    expect(lines(['a: &a [1]', ...rows].join('\n'))).toEqual([
      'weir.yaml: holds an alias that is unknown or multiplies without bound; allowed: aliases of anchors above them, at most 100',
    ])
  })

  test('a mapping of very many keys is read, and its repeated key found', () => {
    const text = Array.from({ length: 50_000 }, (_, index) => `k${index}: 1\n`).join('')
    expect(lines(`${text}k7: 2\n`)).toEqual([
      'weir.yaml line 50001, column 1: the key k7 stands twice; allowed: each key of a mapping once',
    ])
  })

  test('the same key in two mappings is no fault', () => {
    expect(
      lines('server: {port: 1}\ncors: {}\nengines: [{name: a, url: "http://h"}, {name: b, url: "http://h"}]'),
    ).toEqual([])
  })

  test('endless nesting is refused', () => {
    expect(lines(`x: ${'['.repeat(50_000)}`).join()).toMatch(/is nested too deeply; allowed: at most 32 levels$/)
  })

  test('one fault a line, all lines', () => {
    expect(lines('a: 1\nb: "\\q \\q"\na: 2\n')).toHaveLength(2)
  })

  test('the text is not quoted', () => {
    for (const text of [
      'k: |sk-hidden\n',
      'k: "sk-hidden',
      'k: [sk-hidden',
      'k: *sk-hidden',
      '%sk-hidden\n',
      'k: @sk-hidden',
      'k: "a" sk-hidden',
    ]) {
      expect(lines(text).join('\n')).not.toContain('hidden')
      expect(lines(text)).not.toEqual([])
    }
  })
})

describe('variables and flags', () => {
  test.each([
    [{ WEIR_PROT: '1' }, {}, ['WEIR_PROT: is not a variable of Weir; did you mean WEIR_PORT?']],
    [
      { WEIR_SOMETHING_ELSE: 'hidden' },
      {},
      [
        'WEIR_SOMETHING_ELSE: is not a variable of Weir; known: WEIR_CONFIG, WEIR_PORT, WEIR_OPS_PORT, WEIR_DATA, WEIR_WORKERS, WEIR_DEMO_KEY, WEIR_ADMIN_TOKEN, WEIR_OPS_URL',
      ],
    ],
    [{ WEIR_PORT: '80a' }, {}, [`WEIR_PORT: "80a" is not a whole number; ${port}`]],
    [{ WEIR_PORT: '80a' }, { port: '99999' }, [`--port: 99999 is too large; ${port}`]],
    [
      {},
      { port: '', ops_port: '1e3' },
      [`--port: "" is not a whole number; ${port}`, `--ops-port: "1e3" is not a whole number; ${port}`],
    ],
    [
      { WEIR_WORKERS: '0' },
      {},
      ['WEIR_WORKERS: 0 is not one of the choices; allowed: auto or a whole number from 1 to 30'],
    ],
    [{}, { data: '' }, ['--data: is empty; allowed: text of 1 to 1024 characters']],
    [
      { WEIR_PORT: '9090' },
      {},
      ['server.ops_port: 9090 is also the port of the data plane; allowed: another port, or 0 for a free one'],
    ],
    [
      { WEIR_ADMIN_TOKEN: 'a\nb' },
      {},
      [
        'WEIR_ADMIN_TOKEN: holds a control character (U+000A at position 2); allowed: printable ASCII without comma, at least 16 characters',
      ],
    ],
    [
      { WEIR_DEMO_KEY: 'ключ' },
      {},
      [
        'WEIR_DEMO_KEY: holds a character outside ASCII (U+043A at position 1); allowed: printable ASCII without comma, at least 16 characters',
      ],
    ],
    [
      { WEIR_ADMIN_TOKEN: 'guess-me', WEIR_DEMO_KEY: 'one-key,another-key' },
      {},
      [
        'WEIR_DEMO_KEY: holds a comma; allowed: printable ASCII without comma, at least 16 characters',
        'WEIR_ADMIN_TOKEN: has 8 characters; allowed: printable ASCII without comma, at least 16 characters',
      ],
    ],
    [
      { WEIR_DEMO_KEY: ' a-key-of-the-demo\r\n', WEIR_ADMIN_TOKEN: 'sixteen-letters-', WEIR_OPS_URL: 'http://h' },
      {},
      [],
    ],
    // What Kubernetes sets beside a Service named weir, and what another program sets.
    [
      {
        WEIR_PORT: 'tcp://10.0.0.1:80',
        WEIR_SERVICE_HOST: 'h',
        WEIR_PORT_80_TCP_ADDR: 'h',
        WEIR_OPS_SERVICE_PORT_HTTP: '1',
      },
      {},
      [],
    ],
    [{ PORT: 'x', WEIRD: 'x' }, {}, []],
  ] as [Env, Flags, string[]][])('%p %p', (env, flags, expected) => {
    expect(lines('', env, flags)).toEqual(expected)
  })

  test('a variable that the file refers to may have any name', () => {
    expect(lines(engine('key: "${WEIR_ENGINE_KEY}"'), { WEIR_ENGINE_KEY: 'k' })).toEqual([])
  })

  test('the value of a variable that the file refers to is shown as the reference', () => {
    const text = `server: {port: "\${SECRET}"}\nengines: [{name: e, url: "\${SECRET}", key: "\${SECRET}\\x07"}]\n`
    expect(lines(text, { SECRET: 'sk-hidden' })).toEqual([
      `server.port: \${SECRET} is not a whole number; ${port}`,
      `engines[0].url: \${SECRET} is not an address; allowed: ${url_allowed}`,
      `engines[0].key: holds a control character (U+0007 at position 10); ${key_allowed}`,
    ])
  })
})

test('faults of every kind are told at once', () => {
  const text = `server: {prot: 1}\n${engine('key: "${MISSING}", capacity: 0')}\nmodels: [{name: m, targets: [{engine: f}]}]\n`
  expect(lines(text, { WEIR_PROT: '1' }, { port: 'x' })).toEqual([
    'WEIR_PROT: is not a variable of Weir; did you mean WEIR_PORT?',
    'engines[0].key: the variable MISSING is not set; set it, or write ${MISSING:-default}',
    'server.prot: is not a setting; did you mean port?',
    `--port: "x" is not a whole number; ${port}`,
    'engines[0].capacity: 0 is too small; allowed: a whole number from 1 to 100000',
    'models[0].targets[0].engine: "f" is not an engine; known: e',
    'models[0].price: is missing; needed: a price, or free: true on purpose',
  ])
})

test('many faults are counted, not all told', () => {
  const found = lines(`tenants: [${Array(faults_max + 5).fill('{name: t}')}]`)
  expect(found).toHaveLength(faults_max + 1)
  expect(found.at(-1)).toBe('…: 4 further faults; not shown')
})

test('of many known names the nearest stands first', () => {
  const engines = Array.from({ length: 30 }, (_, index) => `{name: engine-${index + 10}x, url: "http://h"}`)
  const text = `engines: [${engines}]\nmodels: [{name: m, free: true, targets: [{engine: engine-33}]}]`
  expect(lines(text)).toEqual([
    'models[0].targets[0].engine: "engine-33" is not an engine; known: engine-33x, engine-10x, engine-11x, engine-12x, ' +
      'engine-13x, engine-14x, engine-15x, engine-16x, engine-17x, engine-18x and 20 more',
  ])
})

test.each([
  ['prot', ['data', 'port'], 'port'],
  ['keys', ['name', 'key'], 'key'],
  ['timeout', ['timeouts', 'total'], 'timeouts'],
  ['engine_key', ['url', 'key'], 'key'],
  ['x', ['port', 'url'], undefined],
  ['ab', ['xy'], undefined],
  ['', ['port'], undefined],
])('%p is near to one of %p: %p', (written, names, near) => {
  expect(nearest(written, names)).toBe(near)
})

test('a long or strange text is shown on one line', () => {
  expect(quoted('x'.repeat(200))).toBe(`"${'x'.repeat(80)}…"`)
  expect(quoted('a\n"\u0085\u2028')).toBe('"a\\n\\"\\u0085\\u2028"')
})

test('paths', () => {
  expect([join('', 'a'), join('a', 'b-c'), join('a', 0), join('', '1'), join('a', 'x.y')]).toEqual([
    'a',
    'a.b-c',
    'a[0]',
    '["1"]',
    'a["x.y"]',
  ])
})

test('a later stage does not repeat a path, another fault of the same stage does', () => {
  const faults = new FaultList()
  faults.add('a', 'one', '1')
  faults.add('a', 'two', '2')
  faults.nextStage()
  faults.add('a', 'three', '3')
  faults.add('b', 'four', '4')
  expect(faults.all().map(printFault)).toEqual(['a: one; 1', 'a: two; 2', 'b: four; 4'])
})
