/**
 * Joins the base address of an engine and the path of a call.
 *
 * A path under `/v1/` goes below the base's own version: a base with a version among its segments (`/v1`, `/openai/v1`,
 * `/v1beta/openai`, `/api/paas/v4`) is complete and the path's `/v1` is dropped; to one without, it is added. Any
 * other path (`/metrics`, `/tokenize`) goes below the base without a version at its end. The base's prefix and the
 * queries of both are kept, slashes are not doubled, a fragment is dropped.
 *
 * Requires a base with scheme and host, and a path that begins with a slash or is empty (then the base is the address).
 */
export const joinUrl = (base: string, path: string): string => {
  const [root, base_query] = cut(base)
  const [asked, path_query] = cut(path)
  const query = base_query === '' || path_query === '' ? base_query + path_query : `${base_query}&${path_query}`
  const tail = asked.replace(/^\/+/, '/')
  const at = root.indexOf('/', root.indexOf('://') + 3)
  const host = at < 0 ? root : root.slice(0, at)
  const prefix = at < 0 ? '' : root.slice(at).replace(/\/+$/, '')
  const joined = tail === '' ? (at < 0 ? '/' : root.slice(at)) : joinPath(prefix, tail)
  return `${host}${joined}${query === '' ? '' : `?${query}`}`
}

const joinPath = (prefix: string, tail: string): string => {
  const versioned = /^\/v1(?=\/|$)/.exec(tail)
  if (!versioned) return prefix.replace(VERSION_AT_END, '') + tail
  return VERSION.test(prefix) ? prefix + tail.slice(versioned[0].length) : prefix + tail
}

/** A segment that names a version: `v1`, `v4`, `v1beta`, `v1beta2`. */
const VERSION = /\/v\d+(?:alpha|beta)?\d*(?=\/|$)/
const VERSION_AT_END = /\/v\d+(?:alpha|beta)?\d*$/

/** Splits an address into what stands before its query, and the query without its mark. */
const cut = (address: string): [before: string, query: string] => {
  const whole = address.split('#', 1)[0]!
  const at = whole.indexOf('?')
  return at < 0 ? [whole, ''] : [whole.slice(0, at), whole.slice(at + 1)]
}
