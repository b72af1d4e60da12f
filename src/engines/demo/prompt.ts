/**
 * How the demo engine counts, since it has no tokenizer: a token is four bytes of UTF-8, rounded up, over the whole
 * prompt. A chat prompt is, for each message, its role, a line break, its text, a line break; tools add their JSON, an
 * image counts 256 tokens whatever its size. A prompt of token ids counts its ids.
 */
export type Prompt = {
  readonly text: string
  readonly tokens: number
  /** What the text is generated from: the prompt without an assistant message that is to be continued. */
  readonly basis: string
  /** The text of the assistant message to be continued; empty if there is none. */
  readonly continued: string
  /** The text of the last user message, or of the whole prompt. */
  readonly asked: string
  /** Role of the last message; empty for a plain prompt. */
  readonly last_role: string
}

export type Message = { readonly role: string; readonly content?: unknown; readonly tool_calls?: unknown }

const BYTES_PER_TOKEN = 4
const IMAGE_TOKENS = 256

/** Tokens in a text. */
export const countTokens = (text: string): number => Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN)

/** The prompt of a chat. `continues`: the last message is an assistant's, and its text goes on. */
export const chatPrompt = (messages: readonly Message[], tools: unknown, continues: boolean): Prompt => {
  let text = tools === undefined ? '' : `${JSON.stringify(tools)}\n`
  let basis = text
  let asked = ''
  let images = 0
  let said = ''
  for (const [index, message] of messages.entries()) {
    const content = contentOf(message)
    said = content.text
    images += content.images
    if (message.role === 'user') asked = said
    if (continues && index === messages.length - 1) basis = text
    text += `${message.role}\n${said}\n`
  }
  if (!continues) basis = text
  return {
    text,
    tokens: countTokens(text) + images * IMAGE_TOKENS,
    basis,
    continued: continues ? said : '',
    asked,
    last_role: messages.at(-1)!.role,
  }
}

/** The prompt of a plain completion: a text or token ids. */
export const plainPrompt = (prompt: string | readonly number[]): Prompt => {
  const text = typeof prompt === 'string' ? prompt : prompt.join(' ')
  const tokens = typeof prompt === 'string' ? countTokens(prompt) : prompt.length
  return { text, tokens, basis: text, continued: '', asked: text, last_role: '' }
}

const contentOf = ({ content, tool_calls }: Message): { text: string; images: number } => {
  const calls = tool_calls ? JSON.stringify(tool_calls) : ''
  if (typeof content === 'string') return { text: content + calls, images: 0 }
  if (!Array.isArray(content)) return { text: calls, images: 0 }
  let text = ''
  let images = 0
  for (const part of content as { type?: unknown; text?: unknown }[]) {
    if (typeof part?.text === 'string') text += part.text
    else if (part?.type === 'image_url') images++
  }
  return { text: text + calls, images }
}
