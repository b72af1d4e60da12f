import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'

/** CPUs that this process may use: the cgroup's quota (v2 or v1) if it has one, rounded up, never more than the machine's. */
export const usableCpus = (): number => {
  const machine = availableParallelism()
  const quota = quotaV2() ?? quotaV1()
  return quota === undefined ? machine : Math.max(1, Math.min(machine, Math.ceil(quota)))
}

const quotaV2 = (): number | undefined => {
  const found = /^(\d+) (\d+)/.exec(read('/sys/fs/cgroup/cpu.max'))
  return found ? Number(found[1]) / Number(found[2]) : undefined
}

const quotaV1 = (): number | undefined => {
  const quota = Number(read('/sys/fs/cgroup/cpu/cpu.cfs_quota_us') || -1)
  const period = Number(read('/sys/fs/cgroup/cpu/cpu.cfs_period_us') || 0)
  return quota > 0 && period > 0 ? quota / period : undefined
}

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return '' // This kind of cgroup is not mounted.
  }
}
