import type { Plan } from './plan.ts'

/** How one endpoint writes its answers. `top` is the number of alternatives a token's log probability comes with. */
export type Shape = {
  readonly id_prefix: string
  readonly whole_object: string
  readonly chunk_object: string
  /** A choice of a whole answer. `before` is the prompt's text if it is to be echoed. */
  whole(plan: Plan, index: number, top: number | undefined, before: string): object
  /** The choices, as JSON, before the first token, for one token, and after the last. */
  opening(plan: Plan, index: number, before: string): string
  token(plan: Plan, index: number, at: number, top: number | undefined): string
  closing(plan: Plan, index: number): string
}

/** `/v1/chat/completions`. */
export const chatShape: Shape = {
  id_prefix: 'chatcmpl',
  whole_object: 'chat.completion',
  chunk_object: 'chat.completion.chunk',
  whole: (plan, index, top) => {
    const text = plan.tokens.join('')
    const call = plan.tool && {
      id: plan.tool.id,
      type: 'function',
      function: { name: plan.tool.name, arguments: text },
    }
    const logprobs = top === undefined || call ? null : { content: plan.tokens.map((token) => chatLogprob(token, top)) }
    return {
      index,
      message: { role: 'assistant', content: call ? null : text, ...(call && { tool_calls: [call] }) },
      logprobs,
      finish_reason: plan.finish,
      stop_reason: plan.stop_reason,
    }
  },
  opening: ({ tool }, index) => {
    const call = tool && { index: 0, id: tool.id, type: 'function', function: { name: tool.name, arguments: '' } }
    const delta = call ? { role: 'assistant', content: null, tool_calls: [call] } : { role: 'assistant', content: '' }
    return JSON.stringify({ index, delta, logprobs: null, finish_reason: null })
  },
  token: ({ tokens, tool }, index, at, top) => {
    const piece = JSON.stringify(tokens[at])
    if (tool)
      return `{"index":${index},"delta":{"tool_calls":[{"index":0,"function":{"arguments":${piece}}}]},"logprobs":null,"finish_reason":null}`
    const logprobs = top === undefined ? 'null' : JSON.stringify({ content: [chatLogprob(tokens[at]!, top)] })
    return `{"index":${index},"delta":{"content":${piece}},"logprobs":${logprobs},"finish_reason":null}`
  },
  closing: ({ finish, stop_reason }, index) =>
    JSON.stringify({ index, delta: {}, logprobs: null, finish_reason: finish, stop_reason }),
}

/** `/v1/completions`. */
export const textShape: Shape = {
  id_prefix: 'cmpl',
  whole_object: 'text_completion',
  chunk_object: 'text_completion',
  whole: (plan, index, top, before) => ({
    index,
    text: before + plan.tokens.join(''),
    logprobs: top === undefined ? null : textLogprobs(plan.tokens, top, before.length),
    finish_reason: plan.finish,
    stop_reason: plan.stop_reason,
  }),
  opening: (_, index, before) =>
    before === ''
      ? ''
      : JSON.stringify({ index, text: before, logprobs: null, finish_reason: null, stop_reason: null }),
  token: ({ tokens }, index, at, top) => {
    const token = tokens[at]!
    const offset = top === undefined ? 0 : tokens.slice(0, at).join('').length
    const logprobs = top === undefined ? 'null' : JSON.stringify(textLogprobs([token], top, offset))
    return `{"index":${index},"text":${JSON.stringify(token)},"logprobs":${logprobs},"finish_reason":null,"stop_reason":null}`
  },
  closing: ({ finish, stop_reason }, index) =>
    JSON.stringify({ index, text: '', logprobs: null, finish_reason: finish, stop_reason }),
}

/** A made-up log probability that is always the same for the same token and rank. */
const logprobOf = (token: string, rank: number): number => -((Bun.hash.xxHash32(token) % 500) / 1000 + rank * 1.5)

const alternative = (token: string, rank: number): string => (rank === 0 ? token : `${token}${'~'.repeat(rank)}`)

const chatLogprob = (token: string, top: number) => {
  const entry = (rank: number) => {
    const said = alternative(token, rank)
    return { token: said, logprob: logprobOf(token, rank), bytes: [...Buffer.from(said)] }
  }
  return { ...entry(0), top_logprobs: Array.from({ length: top }, (_, rank) => entry(rank)) }
}

const textLogprobs = (tokens: readonly string[], top: number, offset: number) => {
  let at = offset
  const text_offset = tokens.map((token) => (at += token.length) - token.length)
  return {
    text_offset,
    token_logprobs: tokens.map((token) => logprobOf(token, 0)),
    tokens: [...tokens],
    top_logprobs: tokens.map((token) =>
      Object.fromEntries(
        Array.from({ length: Math.max(top, 1) }, (_, rank) => [alternative(token, rank), logprobOf(token, rank)]),
      ),
    ),
  }
}
