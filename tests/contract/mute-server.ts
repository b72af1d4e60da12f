/** A server whose queue of new connections is full, so that a further one never comes up. */
export type MuteServer = AsyncDisposable & { readonly origin: string }

const CHILD = `
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  require('node:fs').writeSync(1, String(listener.port) + '\\n')
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20_000)
`

/** Starts a process that listens and never accepts, and fills its queue. */
export const muteServer = async (): Promise<MuteServer> => {
  const child = Bun.spawn([process.execPath, '-e', CHILD], { stdout: 'pipe', stderr: 'inherit' })
  const port = Number(Buffer.from((await child.stdout.getReader().read()).value ?? []).toString())
  const held = new Set<{ terminate(): void }>()
  let asked = 0
  const connect = () => {
    asked++
    const handlers = { data() {}, open: (socket: { terminate(): void }) => void held.add(socket), connectError() {} }
    Bun.connect({ hostname: '127.0.0.1', port, socket: handlers }).catch(() => {})
  }
  // Every connection of the last hundred came up at once as long as the queue has room.
  while (held.size === asked && asked < 8_192) {
    for (let n = 0; n < 64; n++) connect()
    await Bun.sleep(20)
  }
  const stop = async () => {
    child.kill(9)
    await child.exited
    for (const socket of held) socket.terminate()
  }
  return { origin: `http://127.0.0.1:${port}`, [Symbol.asyncDispose]: stop }
}
