import { expect, test } from 'bun:test'
import { modelState, renderMetrics } from '../../src/engines/demo/metrics.ts'
import { demo_defaults } from '../../src/engines/demo/settings.ts'
import { engineLoad } from '../../src/engines/metrics-text.ts'

test.each([
  // name, page, waiting, cache_usage
  [
    'vLLM',
    'vllm:num_requests_running{engine="0",model_name="m"} 3.0\nvllm:num_requests_waiting{engine="0",model_name="m"} 7.0\nvllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n',
    7,
    0.25,
  ],
  [
    'vLLM with the older name',
    'vllm:num_requests_waiting{model_name="m"} 2\nvllm:gpu_cache_usage_perc{model_name="m"} 0.5\n',
    2,
    0.5,
  ],
  ['vLLM with both names', 'vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.9\n', undefined, 0.9],
  [
    'several ranks',
    'vllm:num_requests_waiting{engine="0"} 2\nvllm:num_requests_waiting{engine="1"} 5\nvllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.7\n',
    7,
    0.7,
  ],
  ['SGLang', 'sglang:num_queue_reqs{model_name="m"} 4.0\nsglang:token_usage{model_name="m"} 0.28\n', 4, 0.28],
  ['TGI', '# TYPE tgi_queue_size gauge\ntgi_queue_size 3\ntgi_batch_current_size 9\n', 3, undefined],
  ['llama.cpp', 'llamacpp:requests_deferred 1\nllamacpp:kv_cache_usage_ratio 0.125\n', 1, 0.125],
  ['llama.cpp without the cache', 'llamacpp:requests_deferred 0\n', 0, undefined],
  ['a label with a brace and a quote', 'vllm:num_requests_waiting{model_name="a}\\"b"} 6\n', 6, undefined],
  ['a timestamp', 'vllm:num_requests_waiting 6 1700000000000\n', 6, undefined],
  ['CRLF', 'tgi_queue_size 6\r\n', 6, undefined],
  ['exponents', 'tgi_queue_size 1.2e+01\n', 12, undefined],
  ['no number', 'tgi_queue_size NaN\nsglang:token_usage +Inf\n', undefined, undefined],
  ['less than nothing', 'tgi_queue_size -1\n', undefined, undefined],
  ['more than full', 'sglang:token_usage 1.02\n', undefined, 1],
  [
    'a name that only begins so',
    'tgi_queue_size_total 6\nvllm:num_requests_waiting_bucket{le="1"} 4\n',
    undefined,
    undefined,
  ],
  ['a comment', '# HELP tgi_queue_size 6\n', undefined, undefined],
  ['nothing', '', undefined, undefined],
  ['no page of figures', '<html>404</html>', undefined, undefined],
])('%s', (_name, page, waiting, cache_usage) => {
  expect(engineLoad(page)).toEqual({ waiting, cache_usage })
})

test('the demo engine is understood', () => {
  const page = renderMetrics([modelState({ name: 'demo', kind: 'chat' }, demo_defaults)], 1_000)
  expect(engineLoad(page)).toEqual({ waiting: 0, cache_usage: 0 })
})
