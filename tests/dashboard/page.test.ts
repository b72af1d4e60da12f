import { expect, test } from 'bun:test'
import { openOpsHouse } from '../http/ops-house.ts'
import { DASHBOARD } from '../../src/dashboard/page.ts'

const policy = DASHBOARD.headers['content-security-policy']

test.each(['style', 'script'])('the page holds one %s, and the policy allows that one by its hash', (tag) => {
  const found = [...DASHBOARD.html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, 'g'))]
  expect(found).toHaveLength(1)
  const hash = new Bun.CryptoHasher('sha256').update(found[0]![1]!).digest('base64')
  expect(policy).toContain(`${tag}-src 'sha256-${hash}';`)
})

test('the page loads nothing from elsewhere and runs nothing that its policy would block', () => {
  expect(DASHBOARD.html).not.toMatch(/(?:src|href|action)="(?!\/(?:docs|metrics)"|data:,")/)
  expect(DASHBOARD.html).not.toMatch(/\s(?:on\w+|style)="/)
  expect(DASHBOARD.html).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/)
  expect(policy).toStartWith("default-src 'none';")
  expect(policy).not.toMatch(/unsafe|\*|https?:/)
})

test('every element that the script asks for stands on the page', () => {
  const script = /<script>([^]*?)<\/script>/.exec(DASHBOARD.html)![1]!
  const asked = [...script.matchAll(/\b(?:at|show|fill)\('([\w-]+)'/g)].map(([, id]) => id!)
  expect(asked.length).toBeGreaterThan(15)
  for (const id of asked) expect(DASHBOARD.html).toContain(`id="${id}"`)
})

test('every family that the script reads is on the metrics page', async () => {
  const house = openOpsHouse()
  house.enliven(0)
  try {
    const { text } = await house.ask('GET', '/metrics')
    const asked = [...DASHBOARD.html.matchAll(/'(weir_[a-z_]+[a-z])'/g)].map(([, name]) => name!)
    expect(asked.length).toBeGreaterThan(7)
    for (const name of asked) expect(text).toContain(`\n${name}`)
    for (const field of ['healthy', 'cooling_seconds', 'capacity', 'in_flight', 'answered_total', 'failed_total'])
      expect(text).toContain(`\nweir_engine_${field}{`)
    for (const field of [
      'live',
      'in_flight',
      'open_streams',
      'loop_lag_seconds',
      'resident_bytes',
      'heartbeat_age_seconds',
    ])
      expect(text).toContain(`\nweir_worker_${field}{`)
  } finally {
    await house.close()
  }
})
