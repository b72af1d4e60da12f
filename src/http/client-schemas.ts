/** What the fields of the client API are, as far as Weir reads them; all others reach the engine untouched. */

const text = (description: string, more: object = {}) => ({ type: 'string', description, ...more })
const whole = (description: string, more: object = {}) => ({ type: 'integer', description, ...more })

const model = text('A model of /v1/models.', { example: 'demo' })
const user = text('Your own name for the person behind the call; stands in the ledger.', { maxLength: 256 })
const stream = { type: 'boolean', default: false, description: 'Answer as an event stream (text/event-stream).' }
const stream_options = {
  type: 'object',
  description: '`include_usage: true` asks for a last event with the usage. Weir reads the usage in any case.',
  properties: { include_usage: { type: 'boolean' } },
}

const usage = {
  type: 'object',
  properties: {
    prompt_tokens: whole('Tokens of the prompt.'),
    completion_tokens: whole('Tokens of the answer.'),
    total_tokens: whole('Their sum.'),
  },
}

const answerOf = (object: string, choice: object) => ({
  type: 'object',
  properties: {
    id: text('The engine’s own id of the answer.'),
    object: text('Kind of the answer.', { enum: [object] }),
    created: whole('Seconds since the epoch.'),
    model: text('The model as the engine names it, unless the model is configured with `rewrite_model`.'),
    choices: { type: 'array', items: choice },
    usage,
  },
})

const finish_reason = text('Why the answer ended: stop, length, tool_calls, content_filter.')

/** The schemas that the client document refers to. */
export const CLIENT_SCHEMAS = {
  ChatRequest: {
    type: 'object',
    required: ['model', 'messages'],
    properties: {
      model,
      messages: {
        type: 'array',
        description: 'The conversation so far.',
        items: {
          type: 'object',
          required: ['role'],
          properties: {
            role: text('Who speaks.', { enum: ['system', 'developer', 'user', 'assistant', 'tool'] }),
            content: { description: 'Text, or a list of parts, passed on as it is.' },
          },
        },
      },
      max_completion_tokens: whole('Most tokens of the answer; `max_tokens` is read as well.', { minimum: 1 }),
      stream,
      stream_options,
      user,
    },
    additionalProperties: { description: 'Any other field reaches the engine unchanged.' },
  },
  ChatAnswer: answerOf('chat.completion', {
    type: 'object',
    properties: {
      index: whole('Number of the choice.'),
      message: { type: 'object', properties: { role: text('assistant'), content: text('The answer.') } },
      finish_reason,
    },
  }),
  CompletionRequest: {
    type: 'object',
    required: ['model', 'prompt'],
    properties: {
      model,
      prompt: { description: 'Text, or a list of texts or tokens.' },
      max_tokens: whole('Most tokens of the answer.', { minimum: 1 }),
      stream,
      stream_options,
      user,
    },
    additionalProperties: { description: 'Any other field reaches the engine unchanged.' },
  },
  CompletionAnswer: answerOf('text_completion', {
    type: 'object',
    properties: { index: whole('Number of the choice.'), text: text('The answer.'), finish_reason },
  }),
  EmbeddingRequest: {
    type: 'object',
    required: ['model', 'input'],
    properties: { model, input: { description: 'Text, or a list of texts or tokens.' }, user },
    additionalProperties: { description: 'Any other field reaches the engine unchanged.' },
  },
  EmbeddingAnswer: {
    type: 'object',
    properties: {
      object: text('Kind of the answer.', { enum: ['list'] }),
      data: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            object: text('embedding'),
            index: whole('Number of the input.'),
            embedding: { type: 'array', items: { type: 'number' } },
          },
        },
      },
      model: text('The model that answered.'),
      usage,
    },
  },
  Model: {
    type: 'object',
    properties: {
      id: text('Name to ask for.'),
      object: text('model'),
      created: whole('Seconds since the epoch.'),
      owned_by: text('weir'),
    },
  },
} as const

const answerFields = (object: string, model_name = 'demo') => ({
  id: 'chatcmpl-0192f3',
  object,
  created: 1_767_225_600,
  model: model_name,
})

/** One whole exchange a kind of call: what is sent and what comes back. */
export const CLIENT_EXAMPLES = {
  chat: {
    asked: { model: 'demo', messages: [{ role: 'user', content: 'Say hello.' }], max_completion_tokens: 32 },
    answered: {
      ...answerFields('chat.completion'),
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hello.' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
    },
    streamed: [
      'data: {"id":"chatcmpl-0192f3","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}\n\n',
      'data: {"id":"chatcmpl-0192f3","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\n',
      'data: [DONE]\n\n',
    ].join(''),
  },
  completions: {
    asked: { model: 'demo', prompt: 'Once upon a time', max_tokens: 8 },
    answered: {
      ...answerFields('text_completion'),
      choices: [{ index: 0, text: ' there was a river.', finish_reason: 'stop' }],
      usage: { prompt_tokens: 4, completion_tokens: 5, total_tokens: 9 },
    },
    streamed:
      'data: {"id":"cmpl-0192f3","object":"text_completion","choices":[{"index":0,"text":" there was a river.","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
  },
  embeddings: {
    asked: { model: 'demo-embed', input: 'A river.' },
    answered: {
      object: 'list',
      data: [{ object: 'embedding', index: 0, embedding: [0.12, -0.08, 0.31] }],
      model: 'demo-embed',
      usage: { prompt_tokens: 3, total_tokens: 3 },
    },
  },
  model: { id: 'demo', object: 'model', created: 1_767_225_600, owned_by: 'weir' },
} as const
