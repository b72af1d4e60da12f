/** What an engine says of its load. Undefined is unknown, which is not zero. */
export type EngineLoad = {
  /** Calls that wait in the engine, over all its models and ranks. */
  readonly waiting: number | undefined
  /** The fullest of its KV caches, 0 to 1. */
  readonly cache_usage: number | undefined
}

/** Names of the queue's length: vLLM now and before 0.3, SGLang, TGI, llama.cpp. The first that is there counts. */
const WAITING = [
  'vllm:num_requests_waiting',
  'vllm_num_requests_waiting',
  'sglang:num_queue_reqs',
  'tgi_queue_size',
  'llamacpp:requests_deferred',
]

/** Names of the share of the KV cache in use: vLLM now and before 0.10, SGLang, llama.cpp. TGI has none. */
const CACHE_USAGE = [
  'vllm:kv_cache_usage_perc',
  'vllm:gpu_cache_usage_perc',
  'vllm_gpu_cache_usage_perc',
  'sglang:token_usage',
  'llamacpp:kv_cache_usage_ratio',
]

const LINE = new RegExp(
  `^(${[...WAITING, ...CACHE_USAGE].join('|')})(?:\\{(?:[^"}\\n]|"(?:[^"\\\\\\n]|\\\\.)*")*\\})?[ \\t]+([^ \\t\\r\\n]+)`,
  'gm',
)

/** Reads the few figures that balancing needs out of a page in Prometheus' text format. Anything else is passed over. */
export const engineLoad = (text: string): EngineLoad => {
  const found = new Map<string, number[]>()
  for (const [, name, value] of text.matchAll(LINE)) {
    const number = Number(value)
    if (!Number.isFinite(number) || number < 0) continue
    const values = found.get(name!)
    if (values) values.push(number)
    else found.set(name!, [number])
  }
  const first = (names: readonly string[]) =>
    names.map((name) => found.get(name)).find((values) => values !== undefined)
  const usage = first(CACHE_USAGE)
  return {
    waiting: first(WAITING)?.reduce((sum, value) => sum + value, 0),
    cache_usage: usage && Math.min(1, Math.max(...usage)),
  }
}
