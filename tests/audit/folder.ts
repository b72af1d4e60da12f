import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Failure } from '../../src/base/failure.ts'

/** A fresh folder that is gone when the `using` block ends. */
export const freshFolder = (): { path: string } & Disposable => {
  const path = mkdtempSync(join(tmpdir(), 'weir-audit-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

/** The value, or an error with what the failure says. */
export const good = <T>(value: T | Failure): T => {
  if (value instanceof Failure) throw new Error(`${value.code}: ${value.detail.says}`, { cause: value.detail.cause })
  return value
}

/** The failure, or an error where there was none. */
export const bad = (value: unknown): Failure => {
  if (value instanceof Failure) return value
  throw new Error('expected a failure')
}
