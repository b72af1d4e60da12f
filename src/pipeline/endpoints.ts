import { ECHO_ENDPOINT } from '../journal/record.ts'

/** The addresses of the data plane that run through the pipeline. One row is all that the stages know of an address. */
export type Endpoint = {
  readonly path: string
  /** `engine` forwards to an engine; `echo` is answered by the gateway itself. */
  readonly kind: 'engine' | 'echo'
  /** The path at an OpenAI-type engine. */
  readonly engine_path: string
  /** Answers may stream. */
  readonly streams: boolean
  /** The field with the prompt, for the estimate of its tokens. */
  readonly prompt_field: 'messages' | 'prompt' | 'input'
}

const engine = (path: string, streams: boolean, prompt_field: Endpoint['prompt_field']): Endpoint => ({
  path,
  kind: 'engine',
  engine_path: path,
  streams,
  prompt_field,
})

export const ENDPOINTS = {
  chat: engine('/v1/chat/completions', true, 'messages'),
  completions: engine('/v1/completions', true, 'prompt'),
  embeddings: engine('/v1/embeddings', false, 'input'),
  data: { path: ECHO_ENDPOINT, kind: 'echo', engine_path: '', streams: false, prompt_field: 'input' },
} as const satisfies Record<string, Endpoint>
