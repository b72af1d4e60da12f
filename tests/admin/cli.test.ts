import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { keysCommand } from '../../src/admin/cli.ts'
import { houseOf } from '../../src/admin/running-house.ts'
import { ADMIN_TOKEN, type OpsTestHouse, openOpsHouse } from '../http/ops-house.ts'

setDefaultTimeout(60_000)

let house: OpsTestHouse
let env: Record<string, string>
beforeAll(() => {
  house = openOpsHouse()
  env = { WEIR_OPS_URL: house.url, WEIR_ADMIN_TOKEN: ADMIN_TOKEN }
})
afterAll(() => house.close())

const run = (line: string, more: Record<string, string | undefined> = {}) =>
  keysCommand(line === '' ? [] : line.split(' '), { ...env, ...more })

test('create prints the key alone, list shows it without its secret, revoke ends it', async () => {
  const made = await run(
    'create --tenant acme --name shop --models llama,mistral --requests-per-minute=60 --tokens-per-minute 1000 --concurrent 2 --priority-max low --expires-at 2027-01-01T00:00:00Z',
  )
  expect([made.exit_code, made.stdout]).toEqual([0, expect.stringMatching(/^weir_[\w-]{43}\n$/)])
  const id = /key_\w+/.exec(made.stderr)![0]
  expect(made.stderr).not.toContain(made.stdout.trim())
  const stored = (await house.ask('GET', '/admin/keys')).json.data[0]
  expect(stored).toMatchObject({
    id,
    tenant: 'acme',
    name: 'shop',
    models: ['llama', 'mistral'],
    requests_per_minute: 60,
    tokens_per_minute: 1_000,
    concurrent: 2,
    priority_max: 'low',
    expires_at: '2027-01-01T00:00:00.000Z',
  })

  const listed = await run('list')
  expect(listed.exit_code).toBe(0)
  const [head, row] = listed.stdout.split('\n')
  expect(head).toStartWith('id ')
  expect(row).toContain(`${id}  acme    shop`)
  expect(listed.stdout).not.toContain(made.stdout.trim())
  expect(JSON.parse((await run('list --json --tenant acme')).stdout).data).toEqual([stored])
  expect(await run('list --tenant org/team')).toEqual({ exit_code: 0, stdout: '', stderr: 'no keys\n' })

  const revoked = await run(`revoke ${id}`)
  expect([revoked.exit_code, revoked.stdout]).toEqual([0, ''])
  expect((await house.ask('GET', '/admin/keys')).json.data[0].revoked_at).not.toBeNull()
})

test('nothing in a name steers the terminal', async () => {
  await house.ask('POST', '/admin/keys', { tenant: 'org/team', name: 'red \u001b[31m\u009b1m\nid' })
  const { stdout } = await run('list --tenant org/team')
  expect(stdout).toContain('red ?[31m?1m?id')
  expect(stdout.trimEnd().split('\n')).toHaveLength(2)
})

test('more keys than a page are all listed', async () => {
  for (let n = 0; n < 3; n++) await run(`create --tenant acme --name n${n}`)
  const all = JSON.parse((await run('list --json')).stdout).data
  expect(all.length).toBeGreaterThanOrEqual(4)
})

test('the token comes from the variable or the data folder', async () => {
  const folder = join(house.data, 'other')
  mkdirSync(folder)
  writeFileSync(join(folder, 'admin-token'), `${ADMIN_TOKEN}\r\n`)
  for (const [line, more] of [
    [`list --data ${folder}`, {}],
    ['list', { WEIR_DATA: folder }],
  ] as const)
    expect((await run(line, { WEIR_ADMIN_TOKEN: undefined, ...more })).exit_code).toBe(0)
  const port = new URL(house.url).port
  expect((await run('list', { WEIR_OPS_URL: undefined, WEIR_OPS_PORT: port })).exit_code).toBe(0)
  expect((await run(`list --ops ${house.url}/`, { WEIR_OPS_URL: 'http://127.0.0.1:1' })).exit_code).toBe(0)
  // Blanks and line ends around a variable go, and an empty one sets nothing, as at the start of a house.
  const blank = { WEIR_OPS_URL: ' \n', WEIR_OPS_PORT: `${port}\r\n`, WEIR_ADMIN_TOKEN: '', WEIR_DATA: ` ${folder}\n` }
  expect((await run('list', blank)).exit_code).toBe(0)
})

test.each<[line: string, exit_code: 0 | 1 | 2, says: string, more: Record<string, string | undefined>]>([
  ['', 2, 'a command is missing; known: create, list, revoke', {}],
  ['creat', 2, '"creat" is not a command; did you mean create?', {}],
  ['constructor', 2, '"constructor" is not a command', {}],
  ['create', 2, '--tenant is missing', {}],
  ['create --tenant', 2, '--tenant needs a value', {}],
  ['create --tenant --name x', 2, '--tenant needs a value', {}],
  ['create --tenant=', 2, '--tenant needs a value', {}],
  ['create --tenant acme --tenant acme', 2, '--tenant stands twice', {}],
  ['create --tenat acme', 2, '--tenat is not a flag of this command; did you mean tenant?', {}],
  ['create acme', 2, 'takes no word but flags; found acme', {}],
  ['create --tenant acme --concurrent many', 2, '--concurrent needs a whole number; found "many"', {}],
  ['create --tenant acme --concurrent -1', 2, '--concurrent needs a whole number', {}],
  ['create', 2, '--tenant is missing', { WEIR_ADMIN_TOKEN: undefined, WEIR_DATA: '/nonexistent' }],
  ['list --json=yes', 2, '--json takes no value', {}],
  ['list --ops ftp://x', 2, '"ftp://x" is not the address of an ops plane', {}],
  ['revoke', 2, 'takes one word, the id of a key; found none', {}],
  ['revoke a b', 2, 'found a b', {}],
  ['create --tenant nobody', 1, 'tenant: "nobody" is not a tenant; known: acme, org/team (400)', {}],
  ['revoke key_x', 1, 'There is no key key_x. (404)', {}],
  ['list', 1, 'The admin token is not valid. (401)', { WEIR_ADMIN_TOKEN: 'wrong' }],
  ['list', 1, 'no admin token', { WEIR_ADMIN_TOKEN: undefined, WEIR_DATA: '/nonexistent' }],
  ['list', 1, 'no house answers at http://127.0.0.1:1', { WEIR_OPS_URL: 'http://127.0.0.1:1' }],
  ['help', 0, '', {}],
])('weir keys %s ends with %i', async (line, exit_code, says, more) => {
  const result = await run(line, more)
  expect(result.exit_code).toBe(exit_code)
  expect(result.stderr).toContain(says)
  expect(result.stdout.includes('weir_')).toBe(false)
  if (exit_code === 2) expect(result.stderr).toContain('weir keys create --tenant T')
})

test('a variable that Kubernetes makes for a Service named weir-ops names no port', () => {
  const env = { WEIR_OPS_PORT: 'tcp://10.0.0.1:9090', WEIR_ADMIN_TOKEN: ADMIN_TOKEN }
  expect(houseOf({ flags: {}, words: [] }, env)).toEqual({ url: 'http://127.0.0.1:9090', token: ADMIN_TOKEN })
})
