import type { OwnJob } from './store.ts'

/** A first-in-first-out list whose head goes in constant time. */
class Line {
  readonly #jobs: (OwnJob | undefined)[] = []
  #head = 0

  get size(): number {
    return this.#jobs.length - this.#head
  }

  push(job: OwnJob): void {
    this.#jobs.push(job)
  }

  shift(): OwnJob | undefined {
    const job = this.#jobs[this.#head]
    if (job === undefined) return undefined
    this.#jobs[this.#head++] = undefined
    if (this.#head > 1_024 && this.#head * 2 > this.#jobs.length)
      this.#jobs.splice(0, this.#head).length = this.#head = 0
    return job
  }
}

/** The jobs of one model that wait in this worker: tenants take turns, each tenant's jobs in their order. */
export class Lane {
  readonly #lines = new Map<string, Line>()
  size = 0

  push(job: OwnJob): void {
    let line = this.#lines.get(job.meta.tenant)
    if (line === undefined) this.#lines.set(job.meta.tenant, (line = new Line()))
    line.push(job)
    this.size++
  }

  /** The next job, of the tenant that has waited longest for a turn. */
  shift(): OwnJob | undefined {
    const [turn] = this.#lines
    if (turn === undefined) return undefined
    const [tenant, line] = turn
    const job = line.shift()
    this.#lines.delete(tenant)
    if (line.size > 0) this.#lines.set(tenant, line)
    this.size--
    return job
  }
}
