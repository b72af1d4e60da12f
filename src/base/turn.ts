let ends: Promise<void> | undefined
let waiting = 0
let waited_last = 0

const NOW = Promise.resolve()

/**
 * Resolves at the end of this turn of the event loop, when everything that has arrived is seen to. What goes to sockets
 * waits for it: bytes for a reader that sleeps wake it, which costs more than sending them, and where many are sent one
 * after the other only the first do. Who is alone, as in the turn before, need not wait.
 */
export const turnEnd = (): Promise<void> => {
  waiting++
  ends ??= new Promise((resolve) =>
    setImmediate(() => {
      ends = undefined
      waited_last = waiting
      waiting = 0
      resolve()
    }),
  )
  return waiting === 1 && waited_last <= 1 ? NOW : ends
}
