import type { JournalFiles, SegmentFile } from '../../src/journal/files.ts'
import type { Roll } from '../kit/wait.ts'

type FakeFile = {
  /** What the operating system has: survives a killed process. */
  bytes: Uint8Array
  /** What the disk has: survives the loss of power. */
  durable: Uint8Array
}

type Sync = { readonly file: FakeFile; readonly seen: Uint8Array; done(): void; failed(cause: Error): void }

const PAGE_BYTES = 4096
const SECTOR_BYTES = 512

/** Storage of a simulated machine. What is stored is durable once a sync that began after it has succeeded, or by luck. */
export class FakeDisk {
  readonly files = new Map<string, FakeFile>()
  /** Syncs that were asked for and not answered. */
  readonly syncs: Sync[] = []
  /** No room for another file. */
  full = false
  /** Planted: says that a sync succeeded and does nothing. */
  lies = false

  /** The files as one process sees them. After `die` nothing that it stores reaches them, and its syncs are answered. */
  process(): { readonly files: JournalFiles; die(): void } {
    const own: FakeFile[] = []
    const fds: FakeFile[] = []
    let dead = false
    const open = (file: FakeFile): SegmentFile => {
      own.push(file)
      return {
        bytes: file.bytes,
        sync: () =>
          new Promise((done, failed) => {
            if (dead) return done()
            this.syncs.push({ file, seen: file.bytes.slice(), done, failed })
          }),
        close: () => undefined,
      }
    }
    const files: JournalFiles = {
      create: async (name, head, size_bytes) => {
        if (this.full && !dead) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })
        const bytes = new Uint8Array(size_bytes)
        bytes.set(head)
        const file = { bytes, durable: bytes.slice() }
        if (!dead) this.files.set(name, file)
        return open(file)
      },
      makeFolder: () => undefined,
      list: () => [...this.files.keys()].map((name) => name.slice(name.lastIndexOf('/') + 1)),
      open: (name) => {
        const file = this.files.get(name)
        return file && fds.push(file) - 1
      },
      read: (fd, into, offset) => {
        const from = fds[fd]!.bytes.subarray(offset, offset + into.length)
        into.set(from)
        return from.length
      },
      close: () => undefined,
      modifiedMs: () => 0,
      remove: (name) => void (dead || this.files.delete(name)),
    }
    const die = () => {
      dead = true
      // Its mapping goes; the pages stay.
      for (const file of own) file.bytes = file.bytes.slice()
      for (let at = this.syncs.length - 1; at >= 0; at--)
        if (own.includes(this.syncs[at]!.file)) this.syncs.splice(at, 1)[0]!.done()
    }
    return { files, die }
  }

  /** Answers one sync: what was stored before it is durable, or nothing is and the process is told. */
  answer(at: number, succeeds: boolean): void {
    const { file, seen, done, failed } = this.syncs.splice(at, 1)[0]!
    if (!succeeds) return failed(Object.assign(new Error('input/output error'), { code: 'EIO' }))
    if (!this.lies) file.durable = seen
    done()
  }

  /** The power fails. Of pages that were not synced the kernel may have written any, whole or in part. */
  loosePower(roll: Roll): void {
    for (const file of this.files.values()) {
      const { bytes, durable } = file
      const left = durable.slice()
      for (let page = 0; page < bytes.length; page += PAGE_BYTES) {
        if (Buffer.compare(bytes.subarray(page, page + PAGE_BYTES), durable.subarray(page, page + PAGE_BYTES)) === 0)
          continue
        const fate = roll(3)
        for (let at = page; at < page + PAGE_BYTES; at += SECTOR_BYTES)
          if (fate === 0 || (fate === 1 && roll(2) === 0)) left.set(bytes.subarray(at, at + SECTOR_BYTES), at)
      }
      file.bytes = left
      file.durable = left.slice()
    }
  }
}
