import fs from 'node:fs'
import { join } from 'node:path'

const SECRET_BYTES = 32

/** The secret of a jobs folder, made by the first who asks. Every process of a house reads the same. */
export const jobsSecret = (folder: string): Uint8Array => {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
  const path = join(folder, 'secret')
  if (!fs.existsSync(path)) {
    const part = `${path}.${process.pid}`
    const fd = fs.openSync(part, 'w', 0o600)
    fs.writeSync(fd, crypto.getRandomValues(new Uint8Array(SECRET_BYTES)))
    fs.fsyncSync(fd)
    fs.closeSync(fd)
    try {
      // A link fails if the name is taken: whoever came first has made the secret.
      fs.linkSync(part, path)
    } catch (cause) {
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'EEXIST')) throw cause
    } finally {
      fs.rmSync(part, { force: true })
    }
  }
  const secret = fs.readFileSync(path)
  if (secret.length !== SECRET_BYTES) throw new Error(`${path} has ${secret.length} bytes, want ${SECRET_BYTES}`)
  return secret
}
