import { Failure } from '../src/base/failure.ts'
import { jsonScanner } from '../src/engines/json-scan.ts'
import { setNested, splice } from '../src/engines/json-splice.ts'
import { readAnswer } from '../src/engines/openai-events.ts'
import { promptSize } from '../src/engines/prompt-size.ts'
import { SseScanner } from '../src/engines/sse-scanner.ts'

/** A figure: nanoseconds for one operation, and for large inputs megabytes a second. */
export type BytesFigure = { readonly value: number; readonly unit: 'ns' | 'MB/s' }

const scan = jsonScanner([
  'model',
  'stream',
  'max_tokens',
  'max_completion_tokens',
  'n',
  'user',
  'stream_options',
  'stream_options.include_usage',
  'messages',
  'tools',
  'input',
  'prompt',
])

/** A chat request of about 400 bytes. */
const chatBody = (): Uint8Array =>
  bytesOf({
    model: 'meta-llama/Llama-3.1-8B-Instruct',
    messages: [
      { role: 'system', content: 'You are a helpful assistant that answers briefly.' },
      {
        role: 'user',
        content: 'Explain how a weir works, and why it keeps the level of the water above it the same. '.repeat(2),
      },
    ],
    temperature: 0.7,
    max_tokens: 256,
    stream: true,
    stream_options: { include_usage: false },
  })

/** A request that carries an image of `image_bytes` in base64. */
const imageBody = (image_bytes: number): Uint8Array => {
  const url = `data:image/png;base64,${'iVBORw0K'.repeat(image_bytes / 8)}`
  return bytesOf({ model: 'm', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }] })
}

/** An ordinary content delta of about 250 bytes, as vLLM sends it. */
const deltaEvent = (): Uint8Array =>
  Buffer.from(
    'data: {"id":"chatcmpl-0123456789abcdef0123456789","object":"chat.completion.chunk","created":1700000000,' +
      '"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":{"content":" hello"},' +
      '"logprobs":null,"finish_reason":null}],"usage":null}\n\n',
  )

const bytesOf = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value))

/**
 * Measures the byte-level functions of the hot path: the best of five rounds of about `round_ms` each.
 * Prints one line a figure if `print` is given.
 */
export const bytesBench = (round_ms = 100, print?: (line: string) => void): Record<string, BytesFigure> => {
  const figures: Record<string, BytesFigure> = {}
  const note = (name: string, value: number, unit: BytesFigure['unit']) => {
    figures[name] = { value, unit }
    print?.(`${name.padEnd(28)} ${value.toFixed(0).padStart(8)} ${unit}`)
  }
  const body = chatBody()
  const found = sound(scan(body))
  const nested = ['stream_options', 'include_usage'] as const
  const { stream_options, 'stream_options.include_usage': include_usage } = found.values
  note(
    'scan_body_ns',
    timed(round_ms, () => sound(scan(body)).root.end),
    'ns',
  )
  note(
    'parse_body_ns',
    timed(round_ms, () => Object.keys(JSON.parse(body.toString())).length),
    'ns',
  )
  note(
    'prompt_size_ns',
    timed(round_ms, () => promptSize(body, found.values.messages!).text_bytes),
    'ns',
  )
  const edited = () =>
    splice(body, [sound(setNested(body, found.root, nested, stream_options, include_usage, 'true'))]).length
  note('splice_ns', timed(round_ms, edited), 'ns')

  const event = deltaEvent()
  const scanner = new SseScanner()
  const read = (chunk: Uint8Array): number => {
    let sum = 0
    scanner.push(chunk)
    while (scanner.next() === true) {
      sum += readAnswer(scanner.data_buffer, scanner.data_start, scanner.data_end).text_bytes
    }
    return sum
  }
  const cut = (chunk: Uint8Array): number => {
    let sum = 0
    scanner.push(chunk)
    while (scanner.next() === true) sum += scanner.end
    return sum
  }
  const many = Buffer.concat(Array.from({ length: 64 }, () => event))
  note(
    'event_cut_ns',
    timed(round_ms, () => cut(event)),
    'ns',
  )
  note(
    'event_cut_and_read_ns',
    timed(round_ms, () => read(event)),
    'ns',
  )
  note('event_of_64_ns', timed(round_ms, () => read(many)) / 64, 'ns')

  const large = imageBody(20_000_000)
  note('scan_20mb_mb_per_s', (large.length / timed(round_ms, () => sound(scan(large)).root.end)) * 1000, 'MB/s')
  const escaped = bytesOf({ model: 'm', prompt: 'line "quoted"\n'.repeat(1_000_000) })
  note('scan_escaped_mb_per_s', (escaped.length / timed(round_ms, () => sound(scan(escaped)).root.end)) * 1000, 'MB/s')
  const deep = Buffer.from('['.repeat(1_000_000))
  note(
    'refuse_deep_ns',
    timed(round_ms, () => (scan(deep) instanceof Failure ? 1 : 0)),
    'ns',
  )
  return figures
}

/** Nanoseconds a call, the best of five rounds; the results are summed so that no call can be left out. */
const timed = (round_ms: number, work: () => number): number => {
  let best = Number.POSITIVE_INFINITY
  let sum = 0
  for (let round = 0; round < 5; round++) {
    const started = Bun.nanoseconds()
    let count = 0
    let spent = 0
    for (let batch = 1; spent < round_ms * 1e6; batch = Math.min(batch * 2, 1024)) {
      for (let i = 0; i < batch; i++) sum += work()
      count += batch
      spent = Bun.nanoseconds() - started
    }
    best = Math.min(best, spent / count)
  }
  if (Number.isNaN(sum)) throw new Error('bench: a result is not a number')
  return best
}

const sound = <T>(value: T | Failure): T => {
  if (value instanceof Failure) throw new Error(value.detail.says)
  return value
}
