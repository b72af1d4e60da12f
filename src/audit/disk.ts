import { closeSync, fdatasync, fstatSync, fsyncSync, openSync, readSync, writeSync } from 'node:fs'

/** Whole reads and writes at a position. All throw the operating system's error; the log turns it into a failure. */

/** Writes the first `length` bytes of `bytes` at `position`, however many calls that takes. */
export const writeAt = (fd: number, bytes: Uint8Array, length: number, position: number): void => {
  let done = 0
  while (done < length) done += writeSync(fd, bytes, done, length - done, position + done)
}

/** Reads up to `length` bytes from `position` into `bytes` at `at`; returns how many there were before the file's end. */
export const readAt = (fd: number, bytes: Uint8Array, at: number, length: number, position: number): number => {
  let done = 0
  while (done < length) {
    const got = readSync(fd, bytes, at + done, length - done, position + done)
    if (got === 0) break
    done += got
  }
  return done
}

/** Opens a file to read and write without truncating it, and makes it if it is missing; `read_only` needs it to exist. */
export const openFile = (path: string, mode: 'read_write' | 'read_only'): number => {
  if (mode === 'read_only') return openSync(path, 'r')
  try {
    return openSync(path, 'r+')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause
    return openSync(path, 'wx+', 0o644)
  }
}

/** The length of an open file in bytes. */
export const fileBytes = (fd: number): number => fstatSync(fd).size

/** Makes the names in a folder durable (a new file is lost with the power until its folder is synced). */
export const syncFolder = (folder: string): void => {
  const fd = openSync(folder, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** Brings to the disk what was written before the call, without holding up the process. */
export const syncLater = (fd: number): Promise<void> =>
  new Promise((done, failed) => fdatasync(fd, (cause) => (cause ? failed(cause) : done())))
