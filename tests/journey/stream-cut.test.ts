import { setDefaultTimeout } from 'bun:test'
import { streamCutsOver } from './stream-cut.journey.ts'

setDefaultTimeout(60_000)

streamCutsOver('http')
