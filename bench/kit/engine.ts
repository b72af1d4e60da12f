/**
 * An engine that costs next to nothing, so that the gateway is what is measured: fixed bytes over `Bun.serve`. As a
 * process: `bun bench/kit/engine.ts PORT [DELAY_MS]`. `/v1/chat/completions` answers JSON of 380 bytes, or 64 events if
 * the body says `"stream":true`; `/stats` tells how many calls there were and the most at once.
 */
const [port = '0', delay = '0'] = process.argv.slice(2)
const delay_ms = Number(delay)

const usage = { prompt_tokens: 12, completion_tokens: 16, total_tokens: 28 }
const json = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion',
    created: 1700000000,
    model: 'bench',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'A weir is a low dam that lets a river through. '.repeat(3).slice(0, 120),
        },
        finish_reason: 'stop',
      },
    ],
    usage,
  }).padEnd(380),
)
const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`
const envelope = { id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1700000000, model: 'bench' }
const events = [
  ...Array.from({ length: 62 }, (_, at) =>
    event({ ...envelope, choices: [{ index: 0, delta: { content: `word${at} ` }, finish_reason: null }] }),
  ),
  event({ ...envelope, choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
  event({ ...envelope, choices: [], usage }),
].map((text) => Buffer.from(text))
const done = Buffer.from('data: [DONE]\n\n')

let calls = 0
let running = 0
let running_max = 0

const stream = () => {
  let at = 0
  return new ReadableStream({
    async pull(controller) {
      if (at < events.length) controller.enqueue(events[at++]!)
      else {
        controller.enqueue(done)
        controller.close()
        running--
      }
      await new Promise((resolve) => setImmediate(resolve))
    },
    cancel: () => void running--,
  })
}

const server = Bun.serve({
  port: Number(port),
  hostname: '127.0.0.1',
  idleTimeout: 255,
  routes: {
    '/stats': () => Response.json({ calls, running, running_max }),
    '/health': () => new Response('OK'),
    '/v1/models': () => Response.json({ object: 'list', data: [] }),
  },
  async fetch(request) {
    calls++
    running_max = Math.max(running_max, ++running)
    const body = await request.text()
    if (delay_ms > 0) await Bun.sleep(delay_ms)
    if (body.includes('"stream":true'))
      return new Response(stream(), { headers: { 'content-type': 'text/event-stream' } })
    running--
    return new Response(json, { headers: { 'content-type': 'application/json' } })
  },
})
process.stdout.write(`engine ready port=${server.port}\n`)
export {}
