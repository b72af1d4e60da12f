/** A call's place in a model: it waits, runs, and leaves, in this order. */
export type Ticket = {
  state: 'waiting' | 'running' | 'done'
  /** Resolves when the call may run; undefined if it may at once. */
  started: Promise<void> | undefined
  start: (() => void) | undefined
}

export type Scheduler = {
  readonly running: number
  readonly running_max: number
  readonly waiting: number
  /** Takes a slot or a place in the queue; undefined if the queue is full. */
  enter(): Ticket | undefined
  /** Gives the slot or the place back, at once, and lets the next one run. Harmless if done before. */
  leave(ticket: Ticket): void
}

/** At most `capacity` calls run, the others wait first come, first served. */
export const scheduler = (capacity: number, queue_max: number): Scheduler => {
  const queue = new Set<Ticket>()
  let running = 0
  let running_max = 0
  const run = (ticket: Ticket) => {
    ticket.state = 'running'
    running_max = Math.max(running_max, ++running)
    ticket.start?.()
  }
  return {
    get running() {
      return running
    },
    get running_max() {
      return running_max
    },
    get waiting() {
      return queue.size
    },
    enter() {
      const ticket: Ticket = { state: 'waiting', started: undefined, start: undefined }
      if (running < capacity) run(ticket)
      else if (queue.size >= queue_max) return undefined
      else {
        ticket.started = new Promise((resolve) => (ticket.start = resolve))
        queue.add(ticket)
      }
      return ticket
    },
    leave(ticket) {
      const was = ticket.state
      ticket.state = 'done'
      if (was === 'waiting') {
        queue.delete(ticket)
        ticket.start?.()
      }
      if (was !== 'running') return
      running--
      const [next] = queue
      if (!next) return
      queue.delete(next)
      run(next)
    },
  }
}
