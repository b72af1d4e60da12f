import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { demoSettings } from '../../../src/engines/demo/main.ts'
import { eventually, tempFolder, within } from '../../kit/wait.ts'

setDefaultTimeout(60_000)

const source = new URL('../../../src/engines/demo/main.ts', import.meta.url).pathname
const folder = tempFolder()
const entry = `${folder.path}/entry.ts`
const parent_entry = `${folder.path}/parent.ts`
beforeAll(async () => {
  await Bun.write(
    entry,
    `import { runDemoEngine } from ${JSON.stringify(source)}
process.exit(await runDemoEngine(process.argv.slice(2)))`,
  )
  await Bun.write(
    parent_entry,
    `const child = Bun.spawn(${JSON.stringify(command())}, { ipc() {}, stdin: 'ignore', stdout: 'pipe' })
for await (const piece of child.stdout) if (piece.length) break
process.stdout.write(\`demo-engine ready port=\${child.pid}\\n\`)
setInterval(() => {}, 1000)`,
  )
})
afterAll(() => folder[Symbol.dispose]())

function command(...args: string[]): string[] {
  return [process.execPath, entry, ...args]
}

const readyPort = async (stdout: ReadableStream<Uint8Array>): Promise<number> => {
  let text = ''
  for await (const piece of stdout) {
    text += Buffer.from(piece).toString()
    const found = /^demo-engine ready port=(\d+)\n/.exec(text)
    if (found) return Number(found[1])
  }
  throw new Error(`no ready line: ${text}`)
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

test('it says where it listens, answers, and ends with its stdin', async () => {
  const child = Bun.spawn(command('--ttft-ms', '0', '--models', 'a,b:embedding'), {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const port = await within(readyPort(child.stdout), 10_000, 'ready line')
  const { data } = (await (await fetch(`http://127.0.0.1:${port}/v1/models`)).json()) as any
  expect(data.map((model: any) => model.id)).toEqual(['a', 'b'])
  child.stdin.end()
  expect(await within(child.exited, 5_000, 'exit')).toBe(0)
})

test('it ends when the channel to its parent closes, and on SIGTERM', async () => {
  const child = Bun.spawn(command(), { ipc() {}, stdout: 'pipe', stdin: 'ignore' })
  await within(readyPort(child.stdout), 10_000, 'ready line')
  child.disconnect()
  expect(await within(child.exited, 5_000, 'exit')).toBe(0)
  const other = Bun.spawn(command(), { ipc() {}, stdout: 'pipe', stdin: 'ignore' })
  await within(readyPort(other.stdout), 10_000, 'ready line')
  other.kill('SIGTERM')
  expect(await within(other.exited, 5_000, 'exit')).toBe(0)
})

test('it ends when its parent is killed', async () => {
  const parent = Bun.spawn([process.execPath, parent_entry], { stdout: 'pipe', stdin: 'ignore' })
  const pid = await within(readyPort(parent.stdout), 10_000, 'pid')
  expect(isAlive(pid)).toBe(true)
  parent.kill('SIGKILL')
  await parent.exited
  await eventually(() => !isAlive(pid), 5_000)
})

test('a port that is taken is exit code 1, bad arguments are 2', async () => {
  using held = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  for (const [args, exit, says] of [
    [['--port', String(held.port)], 1, 'cannot listen'],
    [['--port', 'x'], 2, '--port'],
    [['--capacity', '0'], 2, 'at least 1'],
    [['--speed', '9'], 2, 'speed'],
  ] as const) {
    const child = Bun.spawn(command(...args), { stdin: 'ignore', stderr: 'pipe', stdout: 'ignore' })
    expect(await new Response(child.stderr).text()).toContain(says)
    expect(await child.exited).toBe(exit)
  }
})

test.each([
  [['--port', '0', '--tokens-per-s', '50', '--host', '::1'], { port: 0, tokens_per_s: 50, host: '::1' }],
  [
    ['--models', 'org/a:b,c:embedding'],
    {
      models: [
        { name: 'org/a:b', kind: 'chat' },
        { name: 'c', kind: 'embedding' },
      ],
    },
  ],
  [[], {}],
])('arguments %j', (args, settings) => {
  expect(demoSettings(args)).toEqual(settings as object)
})
