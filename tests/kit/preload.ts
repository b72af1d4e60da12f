import { setDefaultTimeout } from 'bun:test'

// Real processes on a busy machine of two cores: five seconds is not a fault.
setDefaultTimeout(60_000)
