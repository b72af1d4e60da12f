/**
 * Answers why a port cannot be had, undefined if it can: with SO_REUSEPORT the workers would share it with a stranger
 * without a word. Port 0 is always free.
 */
export const portTrouble = (hostname: string, port: number): string | undefined => {
  if (port === 0) return undefined
  try {
    Bun.listen({ hostname, port, exclusive: true, socket: { data: () => undefined } }).stop(true)
    return undefined
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
    if (code === 'EADDRINUSE') return `port ${port} of ${hostname} is in use by another program`
    if (code === 'EACCES') return `port ${port} of ${hostname} may not be bound by this user`
    return `port ${port} of ${hostname} cannot be bound: ${code}`
  }
}
