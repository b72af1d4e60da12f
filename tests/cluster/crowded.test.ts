import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse } from '../kit/house.ts'
import { connectRaw, type RawClient } from '../kit/raw-client.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const ask = async (client: RawClient) => {
  await client.send('GET /health HTTP/1.1\r\nhost: a\r\n\r\n')
  return client.response({ within_ms: 20_000 })
}

test.skipIf(process.platform !== 'linux')(
  'a worker that runs out of descriptors ends connections after their answers, so many more clients than it has are served',
  async () => {
    await using house = await startHouse({ workers: 1, descriptors: 400 })
    using early = await connectRaw(house.port)
    expect((await ask(early)).header('connection')).toBeUndefined()
    const clients: RawClient[] = []
    try {
      // They are let in by the system, and by the worker as far as its descriptors go.
      for (let nth = 0; nth < 800; nth++) clients.push(await connectRaw(house.port))
      const answers = await Promise.all(clients.map(ask))
      expect(answers.filter(({ status, ended }) => status !== 200 || ended !== 'whole')).toEqual([])
      expect(answers.filter((answer) => answer.header('connection') === 'close').length).toBeGreaterThan(200)
    } finally {
      for (const client of clients) client[Symbol.dispose]()
    }
    await eventually(async () => {
      using late = await connectRaw(house.port)
      expect((await ask(late)).header('connection')).toBeUndefined()
    }, 5_000)
  },
)
