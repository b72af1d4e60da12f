let ends: Promise<void> | undefined

/**
 * Resolves at the end of this turn of the event loop, when everything that has arrived is seen to. What goes to sockets
 * waits for it: bytes for a reader that sleeps wake it, which costs more than sending them, and where many are sent one
 * after the other only the first do.
 */
export const turnEnd = (): Promise<void> =>
  (ends ??= new Promise((resolve) =>
    setImmediate(() => {
      ends = undefined
      resolve()
    }),
  ))
