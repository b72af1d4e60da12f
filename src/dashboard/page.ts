import { readFileSync } from 'node:fs'

/**
 * The dashboard: one page that holds its style and its script, and loads nothing but this house's own `/metrics`,
 * `/ready` and, with the admin token typed in, `/admin/calls`. Its policy names style and script by their hashes, so
 * that nothing else can run, whatever a name in the data may hold.
 */

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8')

const style = read('./page.css')
const script = read('./page.js')

/** `sha256-…` of an inline element, as a policy names it (CSP Level 3 §2.3.1). */
const hashed = (text: string): string => `'sha256-${Bun.SHA256.hash(text, 'base64')}'`

/** The page and the headers it needs. */
export const DASHBOARD = {
  // A function, as a text with `$&` in it would be taken for a pattern.
  html: read('./page.html')
    .replace('<!-- style -->', () => `<style>${style}</style>`)
    .replace('<!-- script -->', () => `<script>${script}</script>`),
  headers: {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-cache',
    'content-security-policy': [
      "default-src 'none'",
      `style-src ${hashed(style)}`,
      `script-src ${hashed(script)}`,
      "connect-src 'self'",
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join('; '),
  },
} as const
