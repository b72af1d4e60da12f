import { describe, expect, test } from 'bun:test'
import { demo_models, demo_tenant, withDemo } from '../../src/config/demo.ts'
import { configJsonSchema, configTable, redacted } from '../../src/config/docs.ts'
import { loadConfig } from '../../src/config/load.ts'
import type { Config } from '../../src/config/schema.ts'
import { sample } from './sample.ts'

const load = (tree: unknown): Config => {
  const result = loadConfig({ text: JSON.stringify(tree), env: {} })
  if ('faults' in result) throw new Error(JSON.stringify(result.faults))
  return result.config
}

describe('the demo', () => {
  const url = 'http://127.0.0.1:18081'

  test('an empty configuration is completed, and what comes of it is valid', () => {
    const config = withDemo(load({}), url)
    expect(config.engines.map(({ name, url }) => [name, url])).toEqual([['demo', url]])
    expect(config.models.map(({ name, price }) => [name, price])).toEqual([
      ['demo', { input: '0.20', cached_input: '0.02', output: '0.60' }],
      ['demo-embed', { input: '0.02', output: '0' }],
    ])
    expect(config.tenants.map(({ name }) => name)).toEqual([demo_tenant])
    expect(new Set(config.models.map(({ name }) => name))).toEqual(demo_models as Set<string>)
    expect(load(config)).toEqual(config)
  })

  test('a tenant demo that was configured stays as it is, beside others', () => {
    const tenants = [{ name: 'acme' }, { name: 'demo', limits: { concurrent: 1 }, models: ['demo'] }]
    const config = withDemo(load({ tenants }), url)
    expect(config.tenants).toEqual(load({ tenants }).tenants)
    expect(load(config)).toEqual(config)
  })

  test.each([
    ['engines', { engines: [{ name: 'e', url: 'http://h' }] }],
    ['everything', sample()],
  ])('a configuration with %s is left alone', (_, tree) => {
    const config = load(tree)
    expect(withDemo(config, url)).toBe(config)
  })
})

describe('redaction', () => {
  test('secrets are ***, all else is as it was, and nothing is shared', () => {
    const config = load(sample())
    const shown = redacted(config)
    expect(JSON.stringify(shown)).not.toContain('sk-sample')
    expect(shown.engines[0]!.key).toBe('***')
    expect('key' in shown.engines[1]!).toBe(false)
    expect(JSON.stringify(shown)).not.toContain('a-secret-of-sixteen')
    const { webhook, ...tenant } = shown.tenants[0]!
    expect(webhook).toEqual({ ...config.tenants[0]!.webhook!, secret: '***' })
    const { webhook: _secret, ...other } = config.tenants[0]!
    expect(tenant).toEqual(other)
    expect({ ...shown, engines: [], tenants: [] }).toEqual({ ...config, engines: [], tenants: [] })
    shown.engines[0]!.can.length = 0
    shown.tenants[0]!.budgets.length = 0
    expect(config).toEqual(load(sample()))
  })

  test.each([
    ['https://h/v1?api-version=1', 'https://h/v1?api-version=1'],
    ['https://h/v1?api-key=hidden', 'https://h/v1?api-key=***'],
    ['https://h/v1?v=1&access_token=hidden&w=2', 'https://h/v1?v=1&access_token=***&w=2'],
    ['https://h/?Signature=hidden', 'https://h/?Signature=***'],
  ])('the address %s is shown as %s', (url, shown) => {
    expect(redacted(load({ engines: [{ name: 'e', url }] })).engines[0]!.url).toBe(shown)
  })
})

describe('documentation', () => {
  const rows = configTable().split('\n')

  test('the table has a row of four filled cells for every setting', () => {
    for (const row of rows.slice(2)) {
      const cells = row.split(/(?<!\\) ?\| ?/).slice(1, -1)
      expect(cells).toHaveLength(4)
      expect([row, ...cells.filter((_, index) => index !== 2)]).not.toContain('')
    }
    const paths = rows.slice(2).map((row) => row.split('`')[1]!)
    expect(new Set(paths).size).toBe(paths.length)
    expect(paths).toContain('models[].price.cached_input')
  })

  test.each([
    '| `server.port` | a whole number from 0 to 65535 | `8080` | Port of the data plane; 0 takes a free one. |',
    '| `server.workers` | auto or a whole number from 1 to 30 | `"auto"` | Worker processes; auto is the CPUs of the cgroup. |',
    '| `engines[].key` | printable ASCII, 1 to 8192 characters |  | Credential sent to the engine. Secret. |',
    '| `models[].targets` | a list of 1 to 256 entries | needed | The engines that serve the model. |',
    '| `models[].targets[].weight` | a number above 0, at most 1000000 | `1` | Share of traffic. |',
    '| `models[].timeouts.total_ms` | a whole number from 1 to 86400000 |  | The whole call. |',
  ])('the table has %s', (row) => {
    expect(rows).toContain(row)
  })

  test('the JSON Schema is plain data that demands only what has no default', () => {
    const schema = configJsonSchema()
    expect(JSON.parse(JSON.stringify(schema))).toEqual(schema)
    expect(schema).toMatchObject({
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      additionalProperties: false,
      properties: {
        server: { properties: { port: { type: 'integer', minimum: 0, maximum: 65_535, default: 8080 } } },
        engines: { items: { required: ['name', 'url'], properties: { key: { writeOnly: true } } } },
        models: { items: { required: ['name', 'targets'], properties: { price: { required: ['input', 'output'] } } } },
        tenants: { items: { required: ['name'] } },
      },
    })
    expect('required' in schema).toBe(false)
    expect(configJsonSchema()).not.toBe(schema)
  })
})
