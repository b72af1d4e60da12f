import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { transportContract } from '../contract/transport.contract.ts'

transportContract('sockets', openSocketTransport, { connect_timeout: 'connect_timeout' })
