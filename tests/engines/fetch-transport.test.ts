import { expect, test } from 'bun:test'
import { probe } from '../../src/engines/probe.ts'
import { TransportFailure } from '../../src/engines/transport.ts'
import { sample } from '../config/sample.ts'
import { testCertificate } from '../kit/certificate.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { json } from '../kit/script.ts'
import { openFetchTransport } from '../../src/engines/fetch-transport.ts'
import { transportContract } from '../contract/transport.contract.ts'

transportContract('fetch', openFetchTransport, { connect_timeout: 'first_byte_timeout' })

const DEADLINES = { connect_ms: 2_000, first_byte_ms: 2_000 }
const POST = { method: 'POST', headers: [['content-type', 'application/json']], body: [Buffer.from('{}')] } as const

test('an engine under a certificate that nobody vouches for is not spoken to; with its authority it is', async () => {
  await using engine = startHostileEngine({ answers: [json(200, { ok: true })], tls: true })
  const send = async (ca?: string) => {
    const transport = openFetchTransport({ idle_ms: 1_000, sockets_max: 4, ...(ca !== undefined && { ca }) })
    const head = await transport.send({ ...POST, url: engine.url }, DEADLINES).head
    transport.close()
    return head instanceof TransportFailure ? [head.kind, head.sent] : [head.status]
  }
  const { cert } = testCertificate()
  expect(await send()).toEqual(['connect', false])
  expect(await send(sample().engines[1]!.ca!)).toEqual(['connect', false])
  expect(engine.requests).toHaveLength(0)
  expect(await send(cert)).toEqual([200])
  expect(engine.requests).toHaveLength(1)
})

test('a probe knows the authority as well', async () => {
  await using engine = startHostileEngine({ answers: [json(200, {})], tls: true })
  const { cert } = testCertificate()
  const found = await probe({ url: engine.url, ca: cert }, 0, 2_000, fetch)
  expect(found.result).toEqual({ is: 'good', status: 200 })
  expect((await probe({ url: engine.url }, 0, 2_000, fetch)).result.is).toBe('refused')
})
