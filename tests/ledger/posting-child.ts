import { openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { rollFrom } from '../kit/wait.ts'
import { postAll } from './books.ts'
import { journal, randomRecords } from './make.ts'

/** A process that posts a journal from its beginning, to be killed. Arguments: data folder, seed, calls. */
const [data, seed, calls] = process.argv.slice(2)
const poster = createPoster(openWriter(data!, 'ledger'))
const records = journal('w', randomRecords(rollFrom(Number(seed)), Number(calls)))
process.stdout.write('posting\n')
postAll(poster, records, 7)
process.stdout.write('posted\n')
