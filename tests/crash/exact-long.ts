import { openReader } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { budgetName } from '../../src/quota/budgets.ts'
import { budgetSlot, budgetUsed } from '../../src/table/budget-slot.ts'
import { openTable } from '../../src/table/table.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { CH, D, DONE, end, json, never, script, type Script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { eventually, type Roll, rollFrom } from '../kit/wait.ts'

/**
 * Budgets that pay for exactly N calls, N at random, under 1,000 callers at once over real sockets and four workers; by hand:
 * `bun tests/crash/exact-long.ts` with `ROUNDS`, `CALLERS` and `SEED`. What is asserted of each round, to the nanodollar:
 *
 * - Budget one. Every call costs what it holds, whole or left by its client after the engine counted all of it. Of the
 *   callers exactly min(N, callers) reach the engine, all others get 429.
 * - Budget two. A fifth of the clients leave early, and what they did not use goes back while others ask. At least
 *   min(N, callers) reach the engine, and all charges together are within the budget. Once all have ended as many callers
 *   ask again: now exactly min(⌊left / cost⌋, callers) reach the engine.
 * - Both. What is used of the budget, as admission sees it, is the sum of the charges in the ledger, which is the sum that
 *   the engine's own counts give; each call that reached the engine has one row. So what is left is the grant less the charges.
 */

const TOKENS = 100
const TOKEN = 10_000n
const REQUEST = 12_345n
const costOf = (tokens: number): bigint => BigInt(tokens) * TOKEN + REQUEST
const WHOLE_COST = costOf(TOKENS)
const PRICE = { input: '0', output: '10', request: '0.000012345' }

type Kind = 'whole' | 'stream' | 'late' | 'early'
const usdOf = (nanodollars: bigint): string =>
  `${nanodollars / 1_000_000_000n}.${String(nanodollars % 1_000_000_000n).padStart(9, '0')}`

/** An engine of random durations that keeps what it counted of each call, by user: `budget/kind/tokens/number`. */
const countingEngine = (counted: Map<string, number>, roll: Roll) =>
  startHostileEngine({
    answers: (request): Script => {
      const { user } = request.json() as { user: string }
      if (counted.has(user)) throw new Error(`${user} came twice`)
      const [, kind, tokens] = user.split('/') as [string, Kind, string]
      counted.set(user, Number(tokens))
      const takes = wait(roll(120))
      if (kind === 'whole') return script(takes, json(200, WHOLE('hi', 0, TOKENS)))
      const last = D({ ...CH({ content: 'LAST' }), usage: US(0, Number(tokens)).usage })
      if (kind !== 'stream') return script(sse200, D(CH({ content: 'a' })), takes, last, never)
      return script(sse200, takes, D(CH({ content: 'a' })), D(CH({}, 'stop')), D(US(0, TOKENS)), DONE, end)
    },
  })

type Ports = { readonly port: number; readonly key: string }

/** One call on a connection of its own; answers its status. A client that is to leave does so at the engine's last word. */
const call = ({ port, key }: Ports, user: string): Promise<number> => {
  const kind = user.split('/')[1] as Kind
  const body = JSON.stringify({
    ...{ model: 'm1', user, max_tokens: TOKENS, stream: kind !== 'whole' },
    messages: [{ role: 'user', content: 'hi' }],
  })
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n`
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  let text = ''
  const over = () =>
    /^HTTP\/1\.1 \d/.test(text) ? resolve(Number(text.slice(9, 12))) : reject(new Error(`${user}: cut`))
  Bun.connect({
    hostname: '127.0.0.1',
    port,
    socket: {
      open: (socket) => void socket.write(head + body),
      data: (socket, bytes) => {
        text += bytes.toString('latin1')
        if ((kind === 'late' || kind === 'early') && text.includes('LAST')) socket.terminate()
      },
      close: over,
    },
  }).catch(reject)
  return promise
}

/** Money of a tenant's budget that is used, as admission sees it. */
const usedOf = (house: TestHouse, tenant: string): bigint => {
  const table = openTable(`${house.data}/run/shared.table`)
  return budgetUsed(table, budgetSlot(table, budgetName(`tenant:${tenant}`, 'total', 'UTC'), 1)!, 1)!
}

const must = (holds: boolean, says: string): void => {
  if (!holds) throw new Error(says)
}

const least = (one: bigint, other: number): number => (one < BigInt(other) ? Number(one) : other)

/** Runs the rounds; answers what was seen. Throws at the first thing that is not as stated. */
export const runExact = async ({ rounds, callers, seed }: { rounds: number; callers: number; seed: number }) => {
  const roll = rollFrom(seed)
  const counted = new Map<string, number>()
  await using engine = countingEngine(counted, rollFrom(seed + 1))
  const grants = Array.from({ length: rounds * 2 }, () => {
    const pays_for = 1 + roll(callers - 1)
    return { pays_for, grant: BigInt(pays_for) * WHOLE_COST + BigInt(roll(Number(WHOLE_COST))) }
  })
  await using house = await startHouse({
    workers: 4,
    config: {
      engines: [{ name: 'e1', url: engine.url, probe_ms: 0, capacity: 10_000 }],
      models: [{ name: 'm1', targets: [{ engine: 'e1' }], price: PRICE }],
      tenants: grants.map(({ grant }, at) => ({ name: `t${at}`, budgets: [{ usd: usdOf(grant) }] })),
    },
  })
  let made = 0
  const totals = { admitted: 0, refused: 0, left: 0, charged: 0n }

  /** So many callers at once; answers how many reached the engine. */
  const ask = async (budget: number, kinds: readonly Kind[]): Promise<number> => {
    const before = counted.size
    const key = await house.key(`t${budget}`)
    const users = Array.from({ length: callers }, () => {
      const kind = kinds[roll(kinds.length)]!
      return `t${budget}/${kind}/${kind === 'early' ? 1 + roll(TOKENS / 2) : TOKENS}/${made++}`
    })
    const statuses = await Promise.all(users.map((user) => call({ port: house.port, key }, user)))
    const admitted = users.filter((user) => counted.has(user))
    users.forEach((user, at) =>
      must(statuses[at] === (counted.has(user) ? 200 : 429), `${user}: ${statuses[at]}, engine: ${counted.has(user)}`),
    )
    must(counted.size - before === admitted.length, 'the engine had calls that nobody made')
    totals.admitted += admitted.length
    totals.refused += callers - admitted.length
    totals.left += admitted.filter((user) => /\/(late|early)\//.test(user)).length
    return admitted.length
  }

  /** Waits until all is settled and compares; answers what is left of the budget. */
  const settled = (budget: number): Promise<bigint> => {
    const users = [...counted].filter(([user]) => user.startsWith(`t${budget}/`))
    const charges = users.reduce((sum, [, tokens]) => sum + costOf(tokens), 0n)
    return eventually(() => {
      const rows = house.rows().filter((row) => row['tenant'] === `t${budget}`)
      must(rows.length === users.length, `${rows.length} rows of ${users.length} calls`)
      must(new Set(rows.map((row) => row['end_user'])).size === users.length, 'a call has two rows')
      const posted = rows.reduce((sum, row) => sum + BigInt(row['charge_nanodollars'] ?? -1), 0n)
      must(posted === charges, `${posted} in the ledger, ${charges} by the engine's counts`)
      const used = usedOf(house, `t${budget}`)
      must(used === charges, `${used} used of the budget, ${charges} by the engine's counts`)
      must(charges <= grants[budget]!.grant, `${charges} of ${grants[budget]!.grant}`)
      return grants[budget]!.grant - charges
    }, 20_000)
  }

  const lines: string[] = []
  for (let round = 0; round < rounds; round++) {
    const [one, two] = [2 * round, 2 * round + 1]
    const exact = await ask(one, ['whole', 'stream', 'late'])
    const { pays_for } = grants[one]!
    must(exact === pays_for, `round ${round}: ${exact} reached the engine, the budget pays for ${pays_for}`)
    const left_one = await settled(one)
    must(left_one === grants[one]!.grant - BigInt(pays_for) * WHOLE_COST, `round ${round}: ${left_one} left`)
    const first = await ask(two, ['whole', 'stream', 'whole', 'stream', 'early'])
    must(first >= grants[two]!.pays_for, `round ${round}: ${first} of ${grants[two]!.pays_for} paid for`)
    const can_pay = least((await settled(two)) / WHOLE_COST, callers)
    const second = await ask(two, ['whole', 'stream', 'late'])
    must(second === can_pay, `round ${round}: then ${second}, the money left pays for ${can_pay}`)
    const left_two = await settled(two)
    lines.push(
      `round ${round}: N=${pays_for}: ${exact}, left ${left_one}; N=${grants[two]!.pays_for}: ${first}, then ${second} of ${can_pay}, left ${left_two}`,
    )
  }
  totals.charged = [...counted.values()].reduce((sum, tokens) => sum + costOf(tokens), 0n)
  const ledger = openReader(house.data, 'ledger')
  const faults = findFaults(ledger)
  ledger.sqlite.close()
  must(faults.length === 0, faults.join('\n'))
  return { lines, ...totals }
}

if (import.meta.main) {
  const { ROUNDS = '20', CALLERS = '1000', SEED = String(Math.floor(Math.random() * 2 ** 31)) } = process.env
  console.log(`SEED=${SEED}`)
  const { lines, ...totals } = await runExact({ rounds: Number(ROUNDS), callers: Number(CALLERS), seed: Number(SEED) })
  console.log(lines.join('\n'), totals)
  process.exit(0)
}
