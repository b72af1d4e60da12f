import { Failure } from '../base/failure.ts'
import { jsonScanner } from '../engines/json-scan.ts'
import { replaceValue, splice } from '../engines/json-splice.ts'

const scanModel = jsonScanner(['model'])

/** A JSON answer with another `model`; as it came if it has none, or cannot be read. */
export const renamed = (bytes: Uint8Array, model: string): Uint8Array => {
  const scan = scanModel(bytes)
  if (scan instanceof Failure || scan.values.model === undefined) return bytes
  return Buffer.concat(splice(bytes, [replaceValue(scan.values.model, JSON.stringify(model))]))
}
