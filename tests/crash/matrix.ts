import { readdirSync, statSync } from 'node:fs'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import type { TestHouse } from '../kit/house.ts'
import { connectRaw } from '../kit/raw-client.ts'
import {
  CH,
  D,
  DONE,
  end,
  json,
  script,
  type Script,
  sse200,
  type Step,
  until,
  US,
  wait,
  WHOLE,
} from '../kit/script.ts'
import { call, type Seen } from './traffic.ts'

/** The named points of a call's way at which a process is killed, and how a test gets there from outside. */

export const POINTS = [
  'before_intent',
  'after_intent',
  'during_stream',
  'before_ending',
  'after_ending',
  'before_posting',
  'mid_transaction',
  'mid_checkpoint',
] as const
export type Point = (typeof POINTS)[number]
/** The processes that die; the whole tree every few rounds, which also ends the back-off of those that died before. */
export const VICTIMS = ['worker', 'auditor', 'tree', 'accountant', 'control', 'supervisor'] as const
export type Victim = (typeof VICTIMS)[number]

/** Who is killed where. Each lap of the points begins with another victim, so forty-eight rounds have each pair once. */
export const roundOf = (round: number): readonly [Point, Victim] => {
  const point = round % POINTS.length
  const lap = Math.floor(round / POINTS.length)
  return [POINTS[point]!, VICTIMS[(point + lap) % VICTIMS.length]!]
}

/** What an engine that kills is told to do when. */
export type Trigger = { point: Point | undefined; strike: () => void }

/** Runs when a script comes to it. */
const striking = (trigger: Trigger): Step =>
  until({
    // oxlint-disable-next-line unicorn/no-thenable
    then: (resolve: (value: undefined) => unknown) => {
      trigger.strike()
      return Promise.resolve(resolve(undefined)) as never
    },
  } as PromiseLike<unknown>)

/** Usage that differs by call: the ledger must have just this. */
export const usageOf = (user: string): { prompt: number; completion: number } => {
  const hash = Number(BigInt(Bun.hash(user)) % 10_000n)
  return { prompt: 1 + (hash % 97), completion: 3 + (hash % 89) }
}

/** An engine that strikes at the point that the trigger names, in the one call that is marked for it. */
export const strikingEngine = (trigger: Trigger) =>
  startHostileEngine({
    answers: (request): Script => {
      const { user, stream } = request.json() as { user: string; stream?: boolean }
      const { prompt, completion } = usageOf(user)
      const at = user.endsWith('/strike') ? trigger.point : undefined
      const strike = (point: Point): Step[] => (at === point ? [striking(trigger)] : [])
      if (at === 'after_intent') trigger.strike()
      if (!stream) return script(wait(completion % 20), json(200, WHOLE('hi', prompt, completion)))
      return script(
        ...[sse200, D(CH({ content: 'a' })), wait(completion % 15), D(CH({ content: 'b' })), strike('during_stream')],
        ...[D(CH({ content: 'c' })), D(CH({}, 'stop')), D(US(prompt, completion)), strike('before_ending'), DONE],
        ...[strike('after_ending'), end],
      )
    },
  })

export const bodyOf = (user: string, stream: boolean): string =>
  JSON.stringify({ model: 'm1', user, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }], stream })

type Round = {
  readonly house: TestHouse
  readonly key: string
  readonly name: string
  readonly trigger: Trigger
  readonly kill: () => void
}

/** Makes calls, among them one in which the victim dies at the point; answers what their clients saw. */
export const strikeAt = async (point: Point, { house, key, name, trigger, kill }: Round): Promise<Seen[]> => {
  let struck = false
  trigger.point = point
  trigger.strike = () => {
    if (!struck) kill()
    struck = true
  }
  const make = (mark: string, stream: boolean) => call(house.url, key, bodyOf(`${name}-${mark}`, stream))
  const around = Array.from({ length: 6 }, (_, at) => make(String(at), at % 2 === 0))
  if (point === 'before_intent') await half(house.port, key, bodyOf(`${name}-half`, true), trigger.strike)
  else if (point === 'before_posting') {
    const [accountant] = house.pids('accountant')
    process.kill(accountant!, 'SIGSTOP')
    await Promise.all([...around, make('more', true)])
    trigger.strike()
    goOn(accountant!)
  } else if (point.startsWith('mid_')) {
    const watched =
      point === 'mid_transaction' ? [`${house.data}/ledger.db-wal`] : [`${house.data}/ledger.db`, `${house.data}/audit`]
    await Promise.all([changed(watched).then(trigger.strike), make('more', true)])
  } else around.push(make('x/strike', true))
  const seen = await Promise.all(around)
  trigger.strike()
  return seen
}

/** Lets a stopped process go on, unless it was the one that died. */
const goOn = (pid: number): void => {
  try {
    process.kill(pid, 'SIGCONT')
  } catch {
    // It was killed.
  }
}

/** Sends half a request, and strikes while the worker waits for the rest. */
const half = async (port: number, key: string, body: string, strike: () => void): Promise<void> => {
  using client = await connectRaw(port)
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`
  await client.send(head + body.slice(0, 20))
  await Bun.sleep(5)
  strike()
}

/** Waits until a file, or a file in a folder, was written; ten seconds at most. */
const changed = async (paths: readonly string[]): Promise<void> => {
  const stampOf = (path: string): string => {
    const stat = statSync(path, { throwIfNoEntry: false })
    if (stat?.isDirectory())
      return readdirSync(path)
        .map((name) => stampOf(`${path}/${name}`))
        .join()
    return `${stat?.size} ${stat?.mtimeMs}`
  }
  const before = paths.map(stampOf)
  for (const until_ms = performance.now() + 10_000; performance.now() < until_ms;) {
    if (paths.some((path, at) => stampOf(path) !== before[at])) return
    await Bun.sleep(0)
  }
}
