import { readFileSync } from 'node:fs'

/**
 * The page that checks a proof in a browser: one file that holds its style and its script and may load nothing, for its
 * policy stands in itself, so that it holds when the page is opened from a disk.
 */

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8')

const style = read('./verify.css')
const script = read('./verify.js')
const hashed = (text: string): string => `'sha256-${Bun.SHA256.hash(text, 'base64')}'`

const policy = [
  "default-src 'none'",
  `style-src ${hashed(style)}`,
  `script-src ${hashed(script)}`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ')

// Functions, as a text with `$&` in it would be taken for a pattern.
const page = read('./verify.html')
  .replace('<!-- policy -->', () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
  .replace('<!-- style -->', () => `<style>${style}</style>`)
  .replace('<!-- script -->', () => `<script>${script}</script>`)

const EMPTY = '<script type="application/json" id="bundle"></script>'

/** The page, with a bundle in it that it checks as soon as it is opened, or without one: then it asks for a file. */
export const verifyPage = (bundle?: string): string => {
  if (bundle === undefined) return page
  // Nothing in the data may end its element.
  const data = bundle.replaceAll('<', '\\u003c')
  return page.replace(EMPTY, () => EMPTY.replace('><', () => `>${data}<`))
}

/** Headers to serve it with; the policy in the page repeats itself here, and no site may frame it. */
export const VERIFY_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-cache',
  'content-security-policy': `${policy}; frame-ancestors 'none'`,
} as const
