import { openReader, openWriter } from '../../src/ledger/database.ts'

/** A process that opens both databases and prints how many tables it sees. Arguments: data folder, writer or reader. */
const [data, role] = process.argv.slice(2)
const open = role === 'writer' ? openWriter : openReader
const tables = (['ledger', 'house'] as const).map((name) => {
  const { sqlite } = open(data!, name)
  const found = sqlite
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_\\_%' ESCAPE '\\'")
    .all()
  sqlite.close()
  return found.length
})
process.stdout.write(`${tables.reduce((sum, n) => sum + n)}\n`)
