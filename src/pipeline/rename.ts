/** JSON with another `model`, whose value stands at `[start, end)`; as it came if it has none (`start` is -1). */
export const renamed = (bytes: Uint8Array, start: number, end: number, alias_json: Uint8Array): Uint8Array =>
  start < 0 ? bytes : Buffer.concat([bytes.subarray(0, start), alias_json, bytes.subarray(end)])
