import { expect, test } from 'bun:test'
import { type Plant, PLANTS } from './plant.ts'
import { simulate } from './simulate.ts'

/**
 * Whole lives of a house over a fake clock and a fake disk, with the real limits, holds, journal, posting and budget
 * keeper. `SEED=n` repeats one; ten thousand run by `bun run bench simulate`.
 */

const given = process.env['SEED']
const SEEDS = given === undefined ? Array.from({ length: 200 }, (_, at) => at + 1) : [Number(given)]

const failureOf = (seed: number, plant?: Plant): Promise<string | undefined> =>
  simulate(seed, plant).then(
    () => undefined,
    (cause: Error) => cause.message,
  )

test(`${SEEDS.length} lives: never over, nothing lost, nothing twice, nothing leaked`, async () => {
  const totals = { calls: 0, refused: 0, worker_kills: 0, restarts: 0, power_losses: 0, acked: 0 }
  for (const seed of SEEDS) {
    const lived = await simulate(seed).catch((cause: Error) => {
      throw new Error(`repeat with SEED=${seed}: ${cause.message}`, { cause })
    })
    for (const name of Object.keys(totals) as (keyof typeof totals)[]) totals[name] += lived[name]
  }
  // A simulation in which nothing happens proves nothing.
  if (given === undefined) for (const count of Object.values(totals)) expect(count).toBeGreaterThan(100)
})

test.each(Object.entries(PLANTS))('a planted fault is caught: %s, %s', async (plant) => {
  for (let seed = 1; seed <= 100; seed++) {
    const failure = await failureOf(seed, plant as Plant)
    if (failure === undefined) continue
    console.log(`${plant}: caught with SEED=${seed}: ${failure}`)
    expect(await failureOf(seed, plant as Plant)).toBe(failure)
    expect(await failureOf(seed)).toBeUndefined()
    return
  }
  throw new Error(`${plant} was not caught in 100 seeds`)
})
