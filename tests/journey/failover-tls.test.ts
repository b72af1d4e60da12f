import { setDefaultTimeout } from 'bun:test'
import { failoverOver } from './failover.journey.ts'

setDefaultTimeout(60_000)

failoverOver('https')
