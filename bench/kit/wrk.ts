import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cpuNanoseconds } from './processes.ts'
import type { Served } from './servers.ts'

/** One run of wrk against a server. */
export type Run = {
  readonly calls: number
  readonly calls_per_s: number
  readonly errors: number
  /** Of all the server's processes. */
  readonly cpu_us_per_call: number
  /** Of each pid, in the order of `pids()`. */
  readonly cpu_us_by_pid: ReadonlyMap<number, number>
  /** Of wrk itself: near 1 the load generator is the limit. */
  readonly client_cores: number
  readonly p50_ms: number
  readonly p99_ms: number
  readonly max_ms: number
}

/** Loads a server for so long that its code is compiled; the run is thrown away. */
export const warm = async (server: Served, path: string, body: string, seconds: number): Promise<void> => {
  if (seconds > 0) await wrk(server, path, body, 50, seconds)
}

/** The process's own share of the CPU a call, µs. */
export const usedBy = (run: Run, pid: number | undefined): number => run.cpu_us_by_pid.get(pid ?? 0) ?? 0

/** Posts a body over and over on keep-alive connections from one thread. */
export const wrk = async (
  server: Served,
  path: string,
  body: string,
  connections: number,
  seconds: number,
): Promise<Run> => {
  if (Bun.which('wrk') === null) throw new Error('wrk is not installed: apt-get install wrk')
  const script = join(tmpdir(), `weir-wrk-${process.pid}-${Math.floor(performance.now())}.lua`)
  const headers = Object.entries({ 'content-type': 'application/json', ...server.headers })
  writeFileSync(
    script,
    `wrk.method = "POST"\nwrk.body = [==[${body}]==]\n${headers.map(([name, value]) => `wrk.headers["${name}"] = "${value}"`).join('\n')}
done = function(s, l, r)
  io.write(string.format("RESULT %d %d %d %d %d %d %f %f %f\\n", s.requests, s.duration, s.errors.connect + s.errors.read + s.errors.write + s.errors.timeout, s.errors.status, 0, 0, l:percentile(50) / 1000, l:percentile(99) / 1000, l.max / 1000))
end\n`,
  )
  const pids = server.pids()
  const before = new Map(pids.map((pid) => [pid, cpuNanoseconds(pid)]))
  const child = Bun.spawn({
    cmd: [
      'wrk',
      '-t1',
      `-c${connections}`,
      `-d${Math.max(1, Math.round(seconds))}s`,
      '--timeout',
      '30s',
      '-s',
      script,
      `${server.url}${path}`,
    ],
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const text = await new Response(child.stdout).text()
  await child.exited
  rmSync(script, { force: true })
  const found = /RESULT (\d+) (\d+) (\d+) (\d+) \d+ \d+ ([\d.]+) ([\d.]+) ([\d.]+)/.exec(text)
  if (!found) throw new Error(`wrk said: ${text}`)
  const [calls, duration_us, broken, bad, p50_ms, p99_ms, max_ms] = found.slice(1).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ]
  const usage = child.resourceUsage()!.cpuTime
  const used = new Map(pids.map((pid) => [pid, (cpuNanoseconds(pid) - before.get(pid)!) / 1000 / calls]))
  return {
    calls,
    calls_per_s: calls / (duration_us / 1e6),
    errors: broken + bad,
    cpu_us_per_call: [...used.values()].reduce((sum, one) => sum + one, 0),
    cpu_us_by_pid: used,
    client_cores: Number(usage.total) / duration_us,
    p50_ms,
    p99_ms,
    max_ms,
  }
}
