import { dlopen } from 'bun:ffi'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** Connections that may wait to be accepted, cut by the kernel to net.core.somaxconn. */
export const BACKLOG = 16_384

const LISTENING = '0A'

/**
 * Lets more connections wait at this process's listener on a port than the runtime's 512, beyond which the kernel drops
 * handshakes and clients try again a second later. Linux takes a second `listen` on the same socket as its new length.
 * False if that is not possible here.
 */
export const lengthenBacklog = (port: number, backlog = BACKLOG): boolean => {
  try {
    const inodes = new Set(
      ['tcp', 'tcp6'].flatMap((table) => listening(readFileSync(`/proc/self/net/${table}`, 'utf8'), port)),
    )
    const fds = readdirSync('/proc/self/fd').filter((fd) =>
      inodes.has(/^socket:\[(\d+)\]$/.exec(target(fd))?.[1] ?? ''),
    )
    const { symbols } = dlopen('libc.so.6', { listen: { args: ['i32', 'i32'], returns: 'i32' } })
    return fds.length > 0 && fds.every((fd) => symbols.listen(Number(fd), backlog) === 0)
  } catch {
    return false // Not Linux, or another libc: the runtime's backlog stays.
  }
}

/** Inodes of the sockets that listen on a port. */
const listening = (table: string, port: number): string[] =>
  table
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((row) => row[3] === LISTENING && Number.parseInt(row[1]!.split(':')[1]!, 16) === port)
    .map((row) => row[9]!)

const target = (fd: string): string => {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`)
  } catch {
    return '' // It was the descriptor of the listing itself.
  }
}
