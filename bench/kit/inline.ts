import { Database } from 'bun:sqlite'
import { noteLag, wait } from './slow-ledger.ts'

/**
 * The control of the slow ledger: a proxy that writes each call into SQLite where it serves, before it answers. As a
 * process: `bun bench/kit/inline.ts ENGINE_URL DATABASE`.
 */
const [, , engine_url, file] = process.argv
const db = new Database(file!, { create: true })
db.run('PRAGMA journal_mode = WAL')
db.run('CREATE TABLE calls (id INTEGER PRIMARY KEY, at_ms REAL, model TEXT, tokens INTEGER)')
const insert = db.prepare('INSERT INTO calls (at_ms, model, tokens) VALUES (?, ?, ?)')

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  idleTimeout: 0,
  fetch: async (request) => {
    const answer = await fetch(`${engine_url}${new URL(request.url).pathname}`, {
      method: 'POST',
      body: await request.bytes(),
      headers: { 'content-type': 'application/json' },
    })
    const text = await answer.text()
    const { model, usage } = JSON.parse(text) as { model: string; usage: { total_tokens: number } }
    wait()
    insert.run(Date.now(), model, usage.total_tokens)
    return new Response(text, { headers: { 'content-type': 'application/json' } })
  },
})
noteLag()
process.stdout.write(`inline ready port=${server.port}\n`)
