/**
 * The beginning of a JSON document, closed so that it is one: what is open is closed, a string that broke off ends where
 * it does, and what cannot be told is null. Undefined if that gives no JSON.
 */
export const closeJson = (bytes: Uint8Array): unknown => {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, wholeCharacters(bytes)).toString('utf8')
  const closers: string[] = []
  let quoted = false
  let escape_at = -1
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (quoted) {
      if (char === '\\') {
        escape_at = at
        at += text[at + 1] === 'u' ? 5 : 1
      } else if (char === '"') quoted = false
    } else if (char === '"') quoted = true
    else if (char === '{') closers.push('}')
    else if (char === '[') closers.push(']')
    else if (char === '}' || char === ']') closers.pop()
    if (closers.length > DEPTH_MAX) return undefined
  }
  const close = closers.toReversed().join('')
  // An escape that broke off is left out.
  const sound =
    quoted && escape_at >= text.length - 6 && !isWhole(text.slice(escape_at)) ? text.slice(0, escape_at) : text
  for (const end of quoted ? ['"', '":null'] : ['', ':null', 'null']) {
    const found = parsed(sound + end + close)
    if (found !== undefined) return found
  }
  return parsed(sound.replace(/,\s*$/, '') + close)
}

const DEPTH_MAX = 1_024

const isWhole = (escape: string): boolean => /^\\(?:[^u]|u[0-9a-fA-F]{4})/.test(escape)

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined // Not closed in this way.
  }
}

/** Length without a UTF-8 character that broke off. */
const wholeCharacters = (bytes: Uint8Array): number => {
  let start = bytes.length - 1
  while (start > bytes.length - 4 && start > 0 && (bytes[start]! & 0xc0) === 0x80) start--
  const lead = bytes[start] ?? 0
  const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1
  return start + size > bytes.length ? start : bytes.length
}
