import { describe, expect, test } from 'bun:test'

import { joinUrl } from '../../src/engines/url.ts'

describe('C38: one right address for every base and endpoint', () => {
  const bases = [
    ['http://up:8000', 'http://up:8000/v1', ''],
    ['http://up:8000/', 'http://up:8000/v1', ''],
    ['http://up:8000/v1', 'http://up:8000/v1', ''],
    ['http://up:8000/v1/', 'http://up:8000/v1', ''],
    ['http://up:8000/v1//', 'http://up:8000/v1', ''],
    ['http://up:8000/proxy/openai/v1', 'http://up:8000/proxy/openai/v1', ''],
    ['http://up:8000/proxy', 'http://up:8000/proxy/v1', ''],
    ['http://up:8000/proxy/', 'http://up:8000/proxy/v1', ''],
    ['http://up:8000/openai/v1?api-version=2025-01-01', 'http://up:8000/openai/v1', '?api-version=2025-01-01'],
    ['http://up:8000?api-version=2025-01-01', 'http://up:8000/v1', '?api-version=2025-01-01'],
    ['http://up:8000/v1beta', 'http://up:8000/v1beta', ''],
    ['https://g.example/v1beta/openai', 'https://g.example/v1beta/openai', ''],
    ['https://g.example/v1beta/openai/', 'https://g.example/v1beta/openai', ''],
    ['https://z.example/api/paas/v4', 'https://z.example/api/paas/v4', ''],
    ['https://c.example/client/v4/accounts/1/ai/v1', 'https://c.example/client/v4/accounts/1/ai/v1', ''],
    ['https://p.example/v1/projects/x/endpoints/openapi', 'https://p.example/v1/projects/x/endpoints/openapi', ''],
    ['http://[::1]:8000/v1', 'http://[::1]:8000/v1', ''],
    ['http://up/dev1', 'http://up/dev1/v1', ''],
    ['http://up/v1x', 'http://up/v1x/v1', ''],
    ['http://up/v1#frag', 'http://up/v1', ''],
  ] as const
  const endpoints = ['/chat/completions', '/completions', '/embeddings', '/models', '/messages', '']
  test.each(bases)('%s', (base, root, query) => {
    for (const endpoint of endpoints) {
      expect(joinUrl(base, `/v1${endpoint}`)).toBe(`${root}${endpoint}${query}`)
      expect(joinUrl(base, `//v1${endpoint}`)).toBe(`${root}${endpoint}${query}`)
      // What comes out is what a URL parser makes of it: nothing is left to normalise.
      expect(new URL(joinUrl(base, `/v1${endpoint}`)).href).toBe(joinUrl(base, `/v1${endpoint}`))
    }
  })
})

test.each([
  ['http://up/v1', '/v1/models?limit=5', 'http://up/v1/models?limit=5'],
  ['http://up/v1?a=1', '/v1/models?limit=5', 'http://up/v1/models?a=1&limit=5'],
  ['http://up:8000/v1', '/metrics', 'http://up:8000/metrics'],
  ['http://up:8000/proxy/v1/', '/health', 'http://up:8000/proxy/health'],
  ['http://up:8000', '/metrics', 'http://up:8000/metrics'],
  ['http://up', '/v1models', 'http://up/v1models'],
  ['http://up/run', '', 'http://up/run'],
  ['http://up/run/?k=v', '', 'http://up/run/?k=v'],
  ['http://up', '', 'http://up/'],
  ['http://up/v1', '/v1/models/acme%2Fchat-7b', 'http://up/v1/models/acme%2Fchat-7b'],
])('%s + %s', (base, path, want) => expect(joinUrl(base, path)).toBe(want))
