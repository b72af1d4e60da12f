import { Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { configJsonSchema, redacted } from '../config/docs.ts'
import { adminLogPage } from '../ledger/admin-log.ts'
import { isoOrNull } from './machine.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, PAGE_ROWS } from './route.ts'

/** The configuration in force, its schema, and what was done to the house. */
export const SETTING_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/config',
    tag: 'settings',
    summary: 'The configuration in force',
    description:
      'With every default filled in; secrets are `***`. `generation` goes up with each reload; `file` is what was read, and `sha256` that of its bytes, or null where there was no file.',
    example: {
      generation: 1,
      file: '/etc/weir/weir.yaml',
      sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
      config: { server: { port: 8080, ops_port: 9090 } },
    },
    run: (_asked, { catalogue }) => {
      const { config, generation, origin } = catalogue()
      return { json: { generation, ...origin, config: redacted(config) } }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/config/schema',
    tag: 'settings',
    summary: 'The JSON Schema of the configuration file',
    example: { $schema: 'https://json-schema.org/draft/2020-12/schema', title: 'Weir configuration', type: 'object' },
    run: () => ({ json: configJsonSchema() }),
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/log',
    tag: 'settings',
    summary: 'Changes made through this API, newest first',
    description: 'Who did what to what and when; never a secret. Lines cannot be changed or taken out.',
    query: Type.Object(PAGE, { additionalProperties: false }),
    example: listOf({
      at: '2026-01-31T09:30:00.000Z',
      actor: 'admin',
      action: 'key.create',
      subject: 'key_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
      detail: { tenant: 'acme', name: 'web shop', prefix: 'weir_Zk3v' },
    }),
    run: ({ query }, { house_db }) => {
      const page = adminLogPage(house_db, query.limit ?? PAGE_ROWS, query.cursor)
      if (page instanceof Failure) return page
      const data = page.data.map(({ at_ms, ...action }) => ({ ...action, at: isoOrNull(at_ms) }))
      return { json: { data, next_cursor: page.next_cursor } }
    },
  }),
]
