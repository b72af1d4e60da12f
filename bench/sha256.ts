/** SHA-256 (FIPS 180-4) in plain TypeScript: what a Merkle log costs without native code. Only for comparison. */

const primes = (count: number): number[] => {
  const found: number[] = []
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime !== 0)) found.push(n)
  return found
}
const fraction = (root: number): number => ((root - Math.floor(root)) * 2 ** 32) | 0

/** The round constants: the first bits of the fractions of the cube roots of the first 64 primes. */
const K = Int32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)))
const START = Int32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)))

const state = new Int32Array(8)
const w = new Int32Array(64)
const tail = new Uint8Array(128)

/** Writes the SHA-256 of the first `length` bytes of `input` to 32 bytes of `out`. */
export const pureSha256 = (input: Uint8Array, length: number, out: Uint8Array): void => {
  state.set(START)
  const whole = length - (length % 64)
  for (let at = 0; at < whole; at += 64) block(input, at)
  const rest = length - whole
  const end = rest < 56 ? 64 : 128
  tail.fill(0, rest, end)
  for (let at = 0; at < rest; at++) tail[at] = input[whole + at]!
  tail[rest] = 0x80
  const view_at = end - 8
  const high = Math.floor(length / 2 ** 29)
  const low = (length << 3) >>> 0
  for (let byte = 0; byte < 4; byte++) {
    tail[view_at + byte] = high >>> (24 - 8 * byte)
    tail[view_at + 4 + byte] = low >>> (24 - 8 * byte)
  }
  for (let at = 0; at < end; at += 64) block(tail, at)
  for (let word = 0; word < 8; word++) {
    const value = state[word]!
    out[4 * word] = value >>> 24
    out[4 * word + 1] = value >>> 16
    out[4 * word + 2] = value >>> 8
    out[4 * word + 3] = value
  }
}

const block = (bytes: Uint8Array, at: number): void => {
  for (let t = 0; t < 16; t++) {
    const i = at + 4 * t
    w[t] = (bytes[i]! << 24) | (bytes[i + 1]! << 16) | (bytes[i + 2]! << 8) | bytes[i + 3]!
  }
  for (let t = 16; t < 64; t++) {
    const x = w[t - 15]!
    const y = w[t - 2]!
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3)
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10)
    w[t] = (w[t - 16]! + s0 + w[t - 7]! + s1) | 0
  }
  let a = state[0]!
  let b = state[1]!
  let c = state[2]!
  let d = state[3]!
  let e = state[4]!
  let f = state[5]!
  let g = state[6]!
  let h = state[7]!
  for (let t = 0; t < 64; t++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[t]! + w[t]!) | 0
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
    h = g
    g = f
    f = e
    e = (d + t1) | 0
    d = c
    c = b
    b = a
    a = (t1 + t2) | 0
  }
  state[0] = (state[0]! + a) | 0
  state[1] = (state[1]! + b) | 0
  state[2] = (state[2]! + c) | 0
  state[3] = (state[3]! + d) | 0
  state[4] = (state[4]! + e) | 0
  state[5] = (state[5]! + f) | 0
  state[6] = (state[6]! + g) | 0
  state[7] = (state[7]! + h) | 0
}
