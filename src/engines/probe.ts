import { joinUrl } from './url.ts'

/** The part of an engine's configuration that a probe needs. */
export type Probed = { readonly url: string; readonly key?: string; readonly ca?: string }

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

/** What a request that costs no tokens found. */
export type ProbeResult =
  /** It answers. A 4xx is an answer too: it says that the address or the credential is wrong, not that nobody is there. */
  | { readonly is: 'good'; readonly status: number }
  /** It says itself that it cannot serve. */
  | { readonly is: 'bad'; readonly status: number }
  | { readonly is: 'refused' | 'silent'; readonly cause: unknown }

/** Addresses that cost nothing, in the order in which they are tried. */
export const PROBE_PATHS = ['/health', '/v1/models'] as const

/** Largest page of figures that is read. */
const PAGE_BYTES_MAX = 8 * 1024 * 1024

/**
 * Asks an engine whether it is there, without calling a model. `path` is an index of {@link PROBE_PATHS}; an engine that
 * does not know `/health` is asked for its models. Answers with the index to begin with next time.
 */
export const probe = async (
  engine: Probed,
  path: number,
  timeout_ms: number,
  fetch: Fetch,
): Promise<{ result: ProbeResult; path: number }> => {
  for (let at = path; ; at++) {
    const got = await get(engine, PROBE_PATHS[at]!, timeout_ms, fetch)
    if (!(got instanceof Response)) return { result: got, path: at }
    const { status } = got
    drop(got)
    if ((status === 404 || status === 405 || status === 501) && at + 1 < PROBE_PATHS.length) continue
    return { result: { is: status >= 500 && status !== 501 ? 'bad' : 'good', status }, path: at }
  }
}

/** The engine's page of figures; undefined if it gives none, `denied` if it never will as things stand. */
export const scrape = async (
  engine: Probed,
  timeout_ms: number,
  fetch: Fetch,
): Promise<string | 'denied' | undefined> => {
  const got = await get(engine, '/metrics', timeout_ms, fetch)
  if (!(got instanceof Response)) return undefined
  if (got.ok && Number(got.headers.get('content-length') ?? 0) <= PAGE_BYTES_MAX) return textOf(got)
  drop(got)
  return got.status >= 300 && got.status < 500 && got.status !== 429 ? 'denied' : undefined
}

const get = async (
  { url, key, ca }: Probed,
  path: string,
  timeout_ms: number,
  fetch: Fetch,
): Promise<Response | Extract<ProbeResult, { cause: unknown }>> => {
  try {
    return await fetch(joinUrl(url, path), {
      headers: { 'user-agent': 'weir', ...(key !== undefined && { authorization: `Bearer ${key}` }) },
      redirect: 'manual',
      ...(ca !== undefined && { tls: { ca } }),
      signal: AbortSignal.timeout(timeout_ms),
    })
  } catch (cause) {
    return { is: (cause as Error).name === 'TimeoutError' ? 'silent' : 'refused', cause }
  }
}

// The answer is not wanted; that its end fails is nobody's concern.
const drop = (response: Response): void => void response.body?.cancel().catch(() => undefined)

const textOf = async (response: Response): Promise<string | undefined> => {
  const decoder = new TextDecoder()
  let text = ''
  try {
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += decoder.decode(piece, { stream: true })
      if (text.length > PAGE_BYTES_MAX) return undefined
    }
    return text + decoder.decode()
  } catch {
    return undefined // Cut on the way: as good as no page.
  }
}
