import { readdirSync, readFileSync } from 'node:fs'

const TICKS_PER_S = 100

/** CPU seconds that a process has used so far, user and system; 0 if it is gone. */
export const cpuSeconds = (pid: number): number => {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
    // utime and stime, 14th and 15th field; the split took the first two.
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S
  } catch {
    return 0
  }
}

/** Finer than {@link cpuSeconds}: nanoseconds on a CPU, summed over the threads. */
export const cpuNanoseconds = (pid: number): number => {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce(
      (sum, thread) => sum + Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
      0,
    )
  } catch {
    return 0
  }
}

/** Resident memory of a process in MB. */
export const rssMb = (pid: number): number => {
  try {
    return (Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * 4096) / 1e6
  } catch {
    return 0
  }
}

/** The processes below one, itself included. */
export const tree = (root: number): number[] => {
  const parents = new Map<number, number[]>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const parent = Number(readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1]!.split(' ')[1])
      parents.set(parent, [...(parents.get(parent) ?? []), Number(name)])
    } catch {
      // It has ended meanwhile.
    }
  }
  const found = [root]
  for (let at = 0; at < found.length; at++) found.push(...(parents.get(found[at]!) ?? []))
  return found
}

export const commandLine = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}
