import { openReader } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { type CallRow, startHouse } from '../kit/house.ts'
import { CH, cut, D, DONE, end, json, never, rst, script, type Script, sse200, wait, WHOLE } from '../kit/script.ts'
import { eventually, type Roll, rollFrom } from '../kit/wait.ts'

/**
 * The ledger against the engines' own logs: random usage, cached and reasoning tokens and sound, errors, hang-ups,
 * failovers, broken streams. `CALLS=100000 bun tests/crash/books-long.ts` runs it by hand; a call counts if it reached an
 * engine.
 *
 * The rule, for every kind of call: tokens of its row are the last figures that an engine said of it, none if it said none;
 * its charge is those figures at the price. A client that hangs up has read the last figures before it leaves, and these
 * count what was generated until then. (What is generated unseen by both sides has no figure to compare with.)
 */

/** What an engine counted of a call: the last figures it said. Nothing for a call that it did not answer. */
type Counted = Record<'prompt' | 'cached' | 'heard' | 'completion' | 'reasoning' | 'spoken', number>

export const KINDS = ['whole', 'stream', 'hang_up', 'failover', 'refused', 'cut', 'empty'] as const
type Kind = (typeof KINDS)[number]

const PRICE = { input: '2.53', cached_input: '0.317', audio_input: '40.01', output: '9.99', reasoning: '11.013' }
const PRICES = { ...PRICE, audio_output: '80.7', request: '0.000012345' }
/** The same in picodollars a token and nanodollars a call, written out by hand. */
const PICO = {
  input: 2_530_000n,
  cached: 317_000n,
  heard: 40_010_000n,
  output: 9_990_000n,
  reasoning: 11_013_000n,
  spoken: 80_700_000n,
}
const REQUEST = 12_345n

const usageFrom = (user: string): Counted => {
  const roll = rollFrom(Number(BigInt(Bun.hash(user)) % 1_000_000_007n))
  const [prompt, completion] = [1 + roll(20_000), 1 + roll(4_000)]
  const [cached, reasoning] = [roll(2) * roll(prompt + 1), roll(2) * roll(completion + 1)]
  const [heard, spoken] = [
    roll(3) === 0 ? roll(prompt - cached + 1) : 0,
    roll(3) === 0 ? roll(completion - reasoning + 1) : 0,
  ]
  return { prompt, cached, heard, completion, reasoning, spoken }
}

const usageJson = ({ prompt, cached, heard, completion, reasoning, spoken }: Counted) => ({
  ...{ prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
  prompt_tokens_details: { cached_tokens: cached, audio_tokens: heard },
  completion_tokens_details: { reasoning_tokens: reasoning, audio_tokens: spoken },
})

/** Engines that share a log and refuse the first try of calls that are to fail over. */
const engineWith = (log: Map<string, Counted>, tried: Map<string, number>, roll: Roll) =>
  startHostileEngine({
    answers: (request): Script => {
      const { user } = request.json() as { user: string }
      const kind = user.split('-')[0] as Kind
      const times = (tried.get(user) ?? 0) + 1
      tried.set(user, times)
      const counted = usageFrom(user)
      const says = (figures: Counted) => {
        log.set(user, figures)
        return usageJson(figures)
      }
      const takes = wait(roll(9))
      if (kind === 'refused') return json(400, { error: { message: 'no', type: 'invalid_request_error' } })
      if (kind === 'failover' && times === 1) return counted.prompt % 2 === 0 ? script(rst) : json(503, { error: {} })
      if (kind === 'whole' || kind === 'failover')
        return script(takes, json(200, { ...WHOLE('hi', 0, 0), usage: says(counted) }))
      if (kind === 'empty')
        return script(takes, json(200, { ...WHOLE('', 0, 0), usage: says({ ...counted, ...NOTHING }) }))
      const delta = (text: string, part: number) => {
        // Of what is generated so far all figures are smaller.
        const figures = { ...counted, completion: part, reasoning: 0, spoken: 0 }
        return D({ ...CH({ content: text }), usage: says(figures) })
      }
      const first = Array.from({ length: 1 + roll(5) }, (_, at) => delta('a', 1 + at))
      if (kind === 'hang_up') return script(sse200, first, takes, delta('LAST', first.length + 1 + roll(20)), never)
      if (kind === 'cut') return script(sse200, first, takes, delta('b', first.length + 1), cut)
      return script(
        sse200,
        D(CH({ content: 'a' })),
        takes,
        D(CH({}, 'stop')),
        D({ ...CH({}), choices: [], usage: says(counted) }),
        DONE,
        end,
      )
    },
  })

const NOTHING = { prompt: 0, cached: 0, heard: 0, completion: 0, reasoning: 0, spoken: 0 }

/** Money of a call, computed without any of the house's code. */
const chargeOf = (figures: Counted | undefined, whole: boolean): bigint => {
  if (figures === undefined) return 0n
  const { prompt, cached, heard, completion, reasoning, spoken } = figures
  if (prompt + completion === 0 && !whole) return 0n
  const pico =
    BigInt(prompt - cached - heard) * PICO.input +
    BigInt(cached) * PICO.cached +
    BigInt(heard) * PICO.heard +
    BigInt(completion - reasoning - spoken) * PICO.output +
    BigInt(reasoning) * PICO.reasoning +
    BigInt(spoken) * PICO.spoken
  return (pico + 500n) / 1_000n + REQUEST
}

const COLUMNS = {
  prompt: 'prompt_tokens',
  cached: 'cached_tokens',
  heard: 'audio_input_tokens',
  completion: 'completion_tokens',
  reasoning: 'reasoning_tokens',
  spoken: 'audio_output_tokens',
} as const

/** What differs between a row and the engine's log. */
const differences = (row: CallRow, figures: Counted | undefined): string[] => {
  const want = figures ?? NOTHING
  const found: string[] = []
  for (const [name, column] of Object.entries(COLUMNS) as [keyof Counted, string][])
    if (row[column] !== want[name])
      found.push(`${row['end_user']}: ${column} is ${row[column]}, the engine counted ${want[name]}`)
  const charge = chargeOf(figures, row['ending'] === 'whole')
  if (BigInt(row['charge_nanodollars'] ?? -1) !== charge)
    found.push(`${row['end_user']}: charged ${row['charge_nanodollars']}, it should be ${charge}`)
  return found
}

/** Makes calls by so many callers until so many have reached an engine, and compares. Answers what was found; throws if there is a difference. */
export const runBooks = async (calls: number, callers: number, seconds_max = 3_600) => {
  const log = new Map<string, Counted>()
  const tried = new Map<string, number>()
  await using first = engineWith(log, tried, rollFrom(6))
  await using second = engineWith(log, tried, rollFrom(7))
  const engine = { probe_ms: 0, capacity: 10_000 }
  await using house = await startHouse({
    workers: 2,
    config: {
      engines: [
        { name: 'a', url: first.url, ...engine },
        { name: 'b', url: second.url, ...engine },
      ],
      models: [
        { name: 'm2', targets: [{ engine: 'a' }, { engine: 'b' }], price: PRICES },
        { name: 'm1', targets: [{ engine: 'a' }], price: PRICES },
      ],
      tenants: [{ name: 'acme', budgets: [{ usd: '1000000' }] }],
    },
  })
  const key = await house.key('acme')
  const roll = rollFrom(5)
  const begun_ms = performance.now()
  const statuses = new Map<number, number>()
  let made = 0
  const caller = async () => {
    while (tried.size < calls && performance.now() - begun_ms < seconds_max * 1_000) {
      const kind = KINDS[roll(10)] ?? (roll(2) === 0 ? 'whole' : 'stream')
      const user = `${kind}-${made++}`
      const stream = kind === 'stream' || kind === 'hang_up' || kind === 'cut'
      const leaves = new AbortController()
      const body = { user, stream, max_tokens: 4_000, messages: [{ role: 'user', content: 'x'.repeat(200) }] }
      const model = kind === 'failover' || kind === 'whole' || kind === 'stream' ? 'm2' : 'm1'
      try {
        const answer = await house.post('/v1/chat/completions', { model, ...body }, key, {}, leaves.signal)
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
        const decoder = new TextDecoder()
        let text = ''
        for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) {
          text += decoder.decode(piece, { stream: true })
          if (kind === 'hang_up' && text.includes('LAST')) leaves.abort()
        }
      } catch (cause) {
        if (!leaves.signal.aborted) throw cause
      }
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const took_s = (performance.now() - begun_ms) / 1_000
  const rows = await eventually(() => {
    const found = house.rows()
    const users = new Set(found.map((row) => row['end_user']))
    const missing = [...tried.keys()].filter((user) => !users.has(user))
    if (missing.length > 0) throw new Error(`${missing.length} calls have no row, among them ${missing[0]}`)
    return found
  }, 60_000)
  const faults = rows.flatMap((row) => differences(row, log.get(String(row['end_user']))))
  const sum = rows.reduce((total, row) => total + BigInt(row['charge_nanodollars'] ?? 0), 0n)
  const whole = new Set(rows.filter((row) => row['ending'] === 'whole').map((row) => String(row['end_user'])))
  const wanted = [...log].reduce((total, [user, figures]) => total + chargeOf(figures, whole.has(user)), 0n)
  if (rows.length !== new Set(rows.map((row) => row['end_user'])).size) faults.push('a call has two rows')
  if (sum !== wanted) faults.push(`${sum} nanodollars charged, it should be ${wanted}`)
  const reader = openReader(house.data, 'ledger')
  faults.push(...findFaults(reader))
  reader.sqlite.close()
  if (faults.length > 0) throw new Error(`${faults.length} differences, among them:\n${faults.slice(0, 10).join('\n')}`)
  const having = (column: string) => rows.filter((row) => Number(row[column]) > 0).length
  return {
    made,
    counted: rows.length,
    took_s,
    charged_nanodollars: sum,
    kinds: countBy(rows, (row) => String(row['end_user']).split('-')[0]!),
    endings: countBy(rows, (row) => `${row['ending']}/${row['usage_source']}`),
    failed_over: rows.filter((row) => Number(row['attempts']) > 1 && row['status'] === 200).length,
    with_cached: having('cached_tokens'),
    with_reasoning: having('reasoning_tokens'),
    with_sound: rows.filter((row) => Number(row['audio_input_tokens']) + Number(row['audio_output_tokens']) > 0).length,
    statuses: Object.fromEntries(statuses),
  }
}

const countBy = <T>(list: readonly T[], name: (one: T) => string): Record<string, number> =>
  Object.fromEntries([...Map.groupBy(list, name)].map(([key, those]) => [key, those.length]))

if (import.meta.main) {
  const result = await runBooks(Number(process.env['CALLS'] ?? 20_000), 40, Number(process.env['SECONDS'] ?? 3_600))
  console.log('differences: 0', result)
  process.exit(0)
}
