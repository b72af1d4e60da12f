import { readFileSync } from 'node:fs'
import { tempFolder } from './wait.ts'

/** A certificate for 127.0.0.1 that is its own authority, and its key, both in PEM. */
export type Certificate = { readonly cert: string; readonly key: string }

let made: Certificate | undefined

/** Made once for a process, by openssl; it lives for a day and is nobody's. */
export const testCertificate = (): Certificate => {
  if (made !== undefined) return made
  using folder = tempFolder('weir-certificate')
  const [cert, key] = [`${folder.path}/cert.pem`, `${folder.path}/key.pem`]
  const done = Bun.spawnSync(
    [
      ...['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
      ...['-subj', '/CN=weir-test', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert],
    ],
    { stdout: 'ignore', stderr: 'pipe' },
  )
  if (!done.success) throw new Error(`openssl made no certificate: ${done.stderr.toString()}`)
  const text = (path: string) => readFileSync(path, 'utf8')
  made = { cert: text(cert), key: text(key) }
  return made
}
