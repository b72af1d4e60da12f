import { openFetchTransport } from '../../src/engines/fetch-transport.ts'
import { transportContract } from '../contract/transport.contract.ts'

transportContract('fetch', openFetchTransport, { connect_timeout: 'first_byte_timeout' })
