import type { Journal } from '../../src/journal/writer.ts'

/**
 * Preloaded into the processes of a house under test: its workers get a journal that keeps nothing, so that the accountant
 * has nothing to do. What the house does then is a house without a ledger; the house itself has no switch for that.
 */

/** What stands in place of `openJournal`. */
export const openNothing = (): Promise<Journal> =>
  Promise.resolve({
    series: 'none',
    append: () => 0,
    synced: () => Promise.resolve(undefined),
    flush: () => Promise.resolve(undefined),
    has_room: () => true,
    trouble: () => undefined,
    close: () => Promise.resolve(undefined),
    counts: () => ({ records: 0, bytes: 0, syncs: 0 }),
  })

Bun.plugin({
  name: 'no-journal',
  setup: (build) => {
    build.onLoad({ filter: /\/src\/journal\/writer\.ts$/ }, () => ({
      loader: 'ts',
      contents: `export { openNothing as openJournal } from ${JSON.stringify(import.meta.path)}`,
    }))
  },
})
