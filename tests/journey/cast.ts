import { expect } from 'bun:test'
import { saltedBodyHash } from '../../src/audit/leaf.ts'
import { testCertificate } from '../kit/certificate.ts'
import { startHostileEngine, type HostileEngine, type HostileOptions } from '../kit/hostile-engine.ts'
import { startHouse, type CallRow, type HouseSettings, type TestHouse } from '../kit/house.ts'
import { readSse, type SseRead } from '../kit/sse-read.ts'
import { eventually } from '../kit/wait.ts'
import type { Script } from '../kit/script.ts'

/** A model of a test, with scripted engines of its own: the first is always asked first. */
export type Part = {
  readonly model: string
  readonly engines: readonly HostileEngine[]
  readonly names: readonly string[]
}

/** How the house speaks to its engines: each has a transport of its own. */
export const OVER = ['http', 'https'] as const
export type Over = (typeof OVER)[number]

export type PartSettings = {
  readonly timeouts?: object
  readonly rewrite_model?: boolean
  readonly engine?: object
  /** More settings of one engine each, in their order. */
  readonly engines?: readonly object[]
  /** The engine's own name for the model. */
  readonly engine_model?: string
  /** An address for an engine that is not scripted, instead of the first. */
  readonly urls?: readonly string[]
  /** Addresses of engines that come after the scripted ones. */
  readonly last_urls?: readonly string[]
  /** More settings of every target. */
  readonly target?: object
  /** Sends a second engine in so long after the first. */
  readonly hedge_ms?: number
  /** Other settings of that. */
  readonly hedge?: object
  /** More settings of the model. */
  readonly model?: object
  /** Models to go on with. */
  readonly fallbacks?: readonly string[]
  /** More settings of the model. */
  readonly of_model?: object
  readonly price?: object
  readonly budgets?: readonly object[]
  readonly queue?: object
}

type EngineScript = Script | Omit<HostileOptions, 'port'>

export type Read = SseRead & { readonly response: Response; readonly id: string }

/** Nobody but the calls of a test asks its engines. */
const QUIET = { probe_ms: 0, scrape_ms: 0 }

/** True if the row holds the hash of these bytes: SHA-256(salt ‖ SHA-256(bytes)). */
export const provesAnswer = (row: CallRow, bytes: string | Uint8Array): boolean => {
  const column = (name: string) => row[name] as unknown as Uint8Array
  const sha256 = new Bun.CryptoHasher('sha256').update(bytes).digest()
  return Buffer.from(column('response_sha256')).equals(saltedBodyHash(column('salt'), sha256))
}

/** One house for a test file, and a model for each of its tests. Parts are declared before `open`. */
export const newCast = (
  settings: {
    readonly server?: object
    readonly ledger?: object
    readonly house?: HouseSettings
    readonly tenants?: readonly object[]
    readonly over?: Over
  } = {},
) => {
  const { over = 'http' } = settings
  const secure = over === 'https' ? { ca: testCertificate().cert } : {}
  const engines: object[] = []
  const models: object[] = []
  const scripted: HostileEngine[] = []
  let house: TestHouse | undefined
  let key = ''
  const open = async () => {
    const config = {
      server: settings.server ?? {},
      ledger: settings.ledger ?? {},
      engines,
      models,
      tenants: settings.tenants ?? [{ name: 't' }],
    }
    house = await startHouse({ ...settings.house, config })
    key = await house.key('t')
  }
  const theHouse = () => {
    if (house === undefined) throw new Error('the cast is not open')
    return house
  }

  const part = (scripts: readonly EngineScript[], more: PartSettings = {}): Part => {
    const model = `p${models.length}`
    const played = scripts.map((given) =>
      startHostileEngine({ ...('answers' in given ? given : { answers: [given] }), tls: over === 'https' }),
    )
    scripted.push(...played)
    const urls = [...(more.urls ?? []), ...played.map((engine) => engine.url), ...(more.last_urls ?? [])]
    const names = urls.map((_, index) => `${model}-${'abcdef'[index]}`)
    names.forEach((name, index) =>
      engines.push({ name, url: urls[index], ...QUIET, ...secure, ...more.engine, ...more.engines?.[index] }),
    )
    models.push({
      name: model,
      price: more.price ?? { input: '2.00', cached_input: '0.50', output: '8.00' },
      rewrite_model: more.rewrite_model ?? false,
      // With weights so far apart the first is drawn first, and each other only when those before it are out.
      targets: names.map((engine, index) => ({
        engine,
        model: more.engine_model ?? 'm1',
        weight: 1_000_000 * 1e-12 ** index,
        ...more.target,
      })),
      ...(more.timeouts && { timeouts: more.timeouts }),
      ...((more.hedge_ms || more.hedge) && {
        hedge: { ...(more.hedge_ms && { after_ms: more.hedge_ms }), ...more.hedge },
      }),
      ...(more.queue && { queue: more.queue }),
      ...(more.budgets && { budgets: more.budgets }),
      ...(more.fallbacks && { fallbacks: more.fallbacks }),
      ...more.of_model,
      ...more.model,
    })
    return { model, engines: played, names }
  }

  const post = (played: Part, extra: object = {}, signal?: AbortSignal): Promise<Response> => {
    const body = { model: played.model, messages: [{ role: 'user', content: 'hi' }], ...extra }
    return theHouse().post('/v1/chat/completions', body, key, {}, signal)
  }

  /** A streamed call, read to its end. */
  const stream = async (played: Part, extra: object = {}): Promise<Read> => {
    const response = await post(played, { stream: true, ...extra })
    return { ...(await readSse(response)), response, id: response.headers.get('x-weir-call-id') ?? '' }
  }

  /** The ledger's row of a call, once it is there. */
  const row = (id: string): Promise<CallRow> =>
    eventually(() => {
      const found = theHouse()
        .rows()
        .filter((candidate) => candidate['id'] === id)
      expect(found).toHaveLength(1)
      return found[0]!
    }, 5_000)

  /** The ledger's rows of a model so far. */
  const rowsSoFar = (played: Part): CallRow[] =>
    theHouse()
      .rows()
      .filter((candidate) => candidate['asked_model'] === played.model)

  /** The ledger's rows of a model, once there are exactly so many. */
  const rowsOf = (played: Part, count: number): Promise<CallRow[]> =>
    eventually(() => {
      const found = rowsSoFar(played)
      expect(found).toHaveLength(count)
      return found
    }, 5_000)

  /** The ledger's rows of a model once none of its calls runs any more: at least one for each that reached an engine. */
  const rowsAfter = async (played: Part): Promise<CallRow[]> => {
    await quiet()
    const asked = played.engines.reduce((sum, engine) => sum + engine.requests.length, 0)
    let last = -1
    return eventually(async () => {
      const found = rowsSoFar(played)
      const still = found.length === last
      last = found.length
      expect(found.length).toBeGreaterThanOrEqual(asked)
      if (still) return found
      await Bun.sleep(250)
      throw new Error('rows still come in')
    }, 5_000)
  }

  /** An engine as the ops plane shows it. */
  const health = async (name: string): Promise<any> => {
    const page = (await (await theHouse().admin('GET', 'engines?limit=1000')).json()) as { data: any[] }
    return page.data.find((engine) => engine.name === name)
  }

  /** Waits until no call, no stream and no place at an engine is taken any more. */
  const quiet = (): Promise<boolean> =>
    eventually(async () => {
      const text = await (await fetch(`${theHouse().ops_url}/metrics`)).text()
      const busy = text
        .split('\n')
        .filter((line) => /^weir_(worker_in_flight|worker_open_streams|engine_in_flight)/.test(line))
        .filter((line) => !line.endsWith(' 0'))
      expect(busy).toEqual([])
      return true
    }, 5_000)

  const close = async () => {
    for (const engine of scripted) await engine.stop()
    await house?.[Symbol.asyncDispose]()
  }
  return { part, open, close, post, stream, row, rowsOf, rowsAfter, health, quiet, house: theHouse, key: () => key }
}
