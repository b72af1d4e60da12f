const BLOCK_BYTES = 64
const BLOCK_TOKENS = 16

export type PrefixCache = {
  /** How many tokens at the start of the prompt are known; the rest is remembered. Whole blocks of 16 tokens. */
  look(text: string): number
  readonly blocks: number
}

/**
 * Remembers prompts by chained hashes of their blocks, as vLLM does, and forgets the block that was used longest ago
 * when it is full. Holds numbers only; a hash collision costs a wrong figure and nothing else.
 */
export const prefixCache = (blocks_max: number): PrefixCache => {
  const known = new Set<number>()
  return {
    look(text) {
      if (text.length < BLOCK_BYTES / 3) return 0
      const bytes = Buffer.from(text)
      let chain = 0
      let hits = 0
      let all_known = true
      // The last token is never taken from the cache: the engine needs something to compute.
      for (let end = BLOCK_BYTES; end < bytes.length; end += BLOCK_BYTES) {
        chain = Bun.hash.xxHash32(bytes.subarray(end - BLOCK_BYTES, end), chain)
        all_known &&= known.has(chain)
        if (all_known) hits++
        known.delete(chain)
        known.add(chain)
      }
      for (const oldest of known) {
        if (known.size <= blocks_max) break
        known.delete(oldest)
      }
      return hits * BLOCK_TOKENS
    },
    get blocks() {
      return known.size
    },
  }
}
