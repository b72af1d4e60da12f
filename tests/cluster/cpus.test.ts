import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { usableCpus } from '../../src/cluster/cpus.ts'
import { startHouse } from '../kit/house.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

test.each([
  // machine, /proc/self/cgroup, quota files, CPUs
  ['no groups at all', 8, '', {}, 8],
  ['v2, root of a namespace', 8, '0::/\n', { 'cpu.max': '250000 100000' }, 3],
  ['v2, no quota', 8, '0::/\n', { 'cpu.max': 'max 100000' }, 8],
  ['v2, a quota above the machine', 2, '0::/\n', { 'cpu.max': '900000 100000' }, 2],
  ['v2, less than one CPU is one', 8, '0::/\n', { 'cpu.max': '20000 100000' }, 1],
  ['v2, own slice', 8, '0::/a.slice/b.service\n', { 'a.slice/b.service/cpu.max': '200000 100000' }, 2],
  [
    'v2, the smallest on the way up',
    8,
    '0::/a.slice/b.service\n',
    { 'a.slice/cpu.max': '100000 100000', 'a.slice/b.service/cpu.max': '400000 100000' },
    1,
  ],
  ['v2, a path that is not mounted here', 8, '0::/docker/abc\n', { 'cpu.max': '300000 100000' }, 3],
  [
    'v1, own group',
    8,
    '4:memory:/x\n1:cpu:/app\n',
    { 'cpu/app/cpu.cfs_quota_us': '150000', 'cpu/app/cpu.cfs_period_us': '100000' },
    2,
  ],
  [
    'v1, mounted with cpuacct',
    8,
    '3:cpu,cpuacct:/\n',
    { 'cpu,cpuacct/cpu.cfs_quota_us': '400000', 'cpu,cpuacct/cpu.cfs_period_us': '100000' },
    4,
  ],
  ['v1, no quota', 8, '1:cpu:/\n', { 'cpu/cpu.cfs_quota_us': '-1', 'cpu/cpu.cfs_period_us': '100000' }, 8],
  ['hybrid, v2 beside v1', 8, '1:cpu:/\n0::/\n', { 'unified/cpu.max': '200000 100000' }, 2],
] as const)('%s', (_says, machine, own_groups, quotas, cpus) => {
  using folder = tempFolder('weir-cgroup')
  const mounts = `${folder.path}/mounts`
  for (const [name, text] of Object.entries(quotas)) {
    mkdirSync(path.dirname(`${mounts}/${name}`), { recursive: true })
    writeFileSync(`${mounts}/${name}`, `${text}\n`)
  }
  writeFileSync(`${folder.path}/cgroup`, own_groups)
  expect(usableCpus(machine, { own_groups: `${folder.path}/cgroup`, mounts })).toBe(cpus)
})

/** A group of this machine with a quota of one CPU and the file that moves a process into it; undefined if not permitted. */
const realGroup = (): { folder: string; join: string } | undefined => {
  for (const mount of ['/sys/fs/cgroup/cpu', '/sys/fs/cgroup']) {
    const folder = `${mount}/weir-test-${process.pid}`
    try {
      mkdirSync(folder)
    } catch {
      continue // Read-only, or not ours.
    }
    try {
      if (mount.endsWith('/cpu')) writeFileSync(`${folder}/cpu.cfs_quota_us`, '100000')
      else writeFileSync(`${folder}/cpu.max`, '100000 100000')
      return { folder, join: `${folder}/cgroup.procs` }
    } catch {
      rmdirSync(folder)
    }
  }
  return undefined
}

const group = realGroup()

test.skipIf(group === undefined)(
  '`--workers auto` in a real group with a quota of one CPU starts one worker',
  async () => {
    {
      await using house = await startHouse({ workers: 'auto', cgroup: group!.join })
      expect(house.out()).toContain(' workers=1 ')
      expect(house.pids('worker').length).toBe(1)
      expect(await house.stop()).toBe(0)
    }
    rmdirSync(group!.folder)
  },
)
