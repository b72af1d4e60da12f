import { didYouMean } from '../config/faults.ts'

/** A command that was asked wrongly; the message says how. */
export class UsageFault extends Error {}

/** The command line after the verb. A flag without a value (`json!` in the list of known ones) holds an empty text. */
export type Asking = { readonly flags: Readonly<Record<string, string | undefined>>; readonly words: readonly string[] }

/**
 * Reads `--flag value`, `--flag=value` and words. Throws a {@link UsageFault} for a flag that is unknown, stands twice or
 * lacks its value, and for any other number of words than `words`.
 */
export const flagsOf = (argv: readonly string[], known: readonly string[], words: number): Asking => {
  const flags: Record<string, string> = Object.create(null)
  const found: string[] = []
  for (let at = 0; at < argv.length; at++) {
    const text = argv[at]!
    if (!text.startsWith('--')) {
      found.push(text)
      continue
    }
    const cut = text.indexOf('=')
    const name = text.slice(2, cut < 0 ? undefined : cut)
    if (name in flags) throw new UsageFault(`--${name} stands twice`)
    if (known.includes(`${name}!`)) {
      if (cut >= 0) throw new UsageFault(`--${name} takes no value`)
      flags[name] = ''
      continue
    }
    const names = known.map((one) => one.replace('!', ''))
    if (!known.includes(name))
      throw new UsageFault(`--${name} is not a flag of this command; ${didYouMean(name, names)}`)
    const value = cut < 0 ? argv[++at] : text.slice(cut + 1)
    if (value === undefined || value === '' || (cut < 0 && value.startsWith('--')))
      throw new UsageFault(`--${name} needs a value`)
    flags[name] = value
  }
  if (found.length === words) return { flags, words: found }
  const wanted = words === 0 ? 'no word but flags' : 'one word, the id of a key'
  throw new UsageFault(`this command takes ${wanted}; found ${found.length === 0 ? 'none' : found.join(' ')}`)
}
