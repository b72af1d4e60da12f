import { setDefaultTimeout } from 'bun:test'
import { faultsOver } from './faults.journey.ts'

setDefaultTimeout(60_000)

faultsOver('https')
