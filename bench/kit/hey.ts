import { cpuNanoseconds } from './processes.ts'
import type { Served } from './servers.ts'

/** One run of hey: so many calls by so many clients at once. Times in seconds. */
export type Burst = {
  readonly calls: number
  /** Calls by status; what failed without one (refused, reset, timed out) is under 0. */
  readonly by_status: ReadonlyMap<number, number>
  readonly calls_per_s: number
  readonly avg_s: number
  readonly p50_s: number
  readonly p90_s: number
  readonly p95_s: number
  readonly p99_s: number
  readonly max_s: number
  /** CPU seconds of the server's processes, and of hey. */
  readonly server_cpu_s: number
  readonly client_cpu_s: number
  readonly wall_s: number
}

export type Aim = {
  readonly path: string
  readonly body: string
  readonly calls: number
  readonly clients: number
  readonly headers?: Readonly<Record<string, string>>
}

/** Runs hey against a server. */
export const hey = async (server: Served, { path, body, calls, clients, headers = {} }: Aim): Promise<Burst> => {
  if (Bun.which('hey') === null) throw new Error('hey is not installed: apt-get install hey')
  const pids = server.pids()
  const before = new Map(pids.map((pid) => [pid, cpuNanoseconds(pid)]))
  const started = performance.now()
  const child = Bun.spawn({
    cmd: [
      ...['hey', '-n', String(calls), '-c', String(clients), '-t', '60', '-m', 'POST', '-T', 'application/json'],
      ...Object.entries({ ...server.headers, ...headers }).flatMap(([name, value]) => ['-H', `${name}: ${value}`]),
      ...['-d', body, '-o', 'csv', `${server.url}${path}`],
    ],
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const text = await new Response(child.stdout).text()
  if ((await child.exited) !== 0) throw new Error(`hey said: ${await new Response(child.stderr).text()}`)
  const wall_s = (performance.now() - started) / 1000
  // response-time, dial, DNS, request-write, response-delay, response-read, status-code, offset
  const rows = text
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.split(',').map(Number))
  const times = rows.map((row) => row[0]!).toSorted((one, other) => one - other)
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? Number.NaN
  const by_status = new Map<number, number>()
  for (const row of rows) by_status.set(row[6]!, (by_status.get(row[6]!) ?? 0) + 1)
  if (rows.length < calls) by_status.set(0, calls - rows.length)
  const last_s = Math.max(...rows.map((row) => row[7]! + row[0]!), 0)
  return {
    calls,
    by_status,
    calls_per_s: rows.length / last_s,
    avg_s: times.reduce((sum, one) => sum + one, 0) / times.length,
    p50_s: at(0.5),
    p90_s: at(0.9),
    p95_s: at(0.95),
    p99_s: at(0.99),
    max_s: at(1),
    server_cpu_s: pids.reduce((sum, pid) => sum + cpuNanoseconds(pid) - before.get(pid)!, 0) / 1e9,
    client_cpu_s: Number(child.resourceUsage()!.cpuTime.total) / 1e6,
    wall_s,
  }
}
