import { expect, test } from 'bun:test'
import { readAnswer } from '../../src/engines/openai-events.ts'
import type { TokenCounter } from '../../src/engines/token-counter.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import type { Routed } from '../../src/pipeline/call.ts'
import type { House } from '../../src/pipeline/house.ts'
import { StreamAccount } from '../../src/pipeline/stream-account.ts'
import { unitHouse } from './unit-house.ts'

test('a whole answer that went out as an event is written down before it is counted', async () => {
  await using unit = await unitHouse()
  const records: JournalRecord[] = []
  const append: House['journal']['append'] = (record) => {
    records.push(record)
    return unit.house.journal.append(record)
  }
  const counter: TokenCounter = {
    count: () => new Promise(() => undefined),
    warm: () => undefined,
    ready: () => true,
    stop: () => undefined,
  }
  const house: House = { ...unit.house, counter, journal: { ...unit.house.journal, append } }
  const call = {
    id: 'call_1',
    model: unit.house.catalogue.models.get('m1'),
    body: { scan: { values: {} } },
    arrival: { endpoint: { prompt_field: 'messages' } },
  } as unknown as Routed
  const account = new StreamAccount(call, house)
  const bytes = Buffer.from(
    JSON.stringify({ choices: [{ index: 0, message: { content: 'abcdefgh' }, finish_reason: 'stop' }] }),
  )
  account.whole = { kind: 'whole', bytes, content_type: 'application/json', facts: readAnswer(bytes), first_byte_ms: 1 }
  void account.counted(undefined, { cancel: () => undefined })
  expect(records).toMatchObject([{ kind: 'progress', completion_tokens: 2, usage_source: 'estimated' }])
})
