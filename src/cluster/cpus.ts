import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'

/** Where the system shows processes and control groups. */
const SYSTEM = { own_groups: '/proc/self/cgroup', mounts: '/sys/fs/cgroup' }

/**
 * CPUs that this process may use: its affinity, and the smallest quota (v2 or v1) of its control group and of those
 * above it, rounded up; at least 1.
 */
export const usableCpus = (machine = availableParallelism(), system = SYSTEM): number => {
  const groups = read(system.own_groups).split('\n')
  const quotas = groups.flatMap((line) => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(.*)$/.exec(line) ?? []
    if (controllers === '') return ['', '/unified'].flatMap((mount) => upwards(system.mounts + mount, path, quotaV2))
    if (!controllers.split(',').includes('cpu')) return []
    return ['/cpu', `/${controllers}`].flatMap((mount) => upwards(system.mounts + mount, path, quotaV1))
  })
  return Math.max(1, Math.min(machine, ...quotas.map(Math.ceil)))
}

/** The quotas of a group and of all above it. A path that is not visible here has none; the mount's root always is. */
const upwards = (mount: string, path: string, quota: (folder: string) => number | undefined): number[] => {
  const names = path.split('/').filter((name) => name !== '')
  return names
    .map((_, depth) => `${mount}/${names.slice(0, depth + 1).join('/')}`)
    .concat(mount)
    .map(quota)
    .filter((found) => found !== undefined)
}

const quotaV2 = (folder: string): number | undefined => {
  const found = /^(\d+) (\d+)/.exec(read(`${folder}/cpu.max`))
  return found ? Number(found[1]) / Number(found[2]) : undefined
}

const quotaV1 = (folder: string): number | undefined => {
  const quota = Number(read(`${folder}/cpu.cfs_quota_us`) || -1)
  const period = Number(read(`${folder}/cpu.cfs_period_us`) || 0)
  return quota > 0 && period > 0 ? quota / period : undefined
}

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return '' // This kind of group is not mounted.
  }
}
