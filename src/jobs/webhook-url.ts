import { BlockList, isIP } from 'node:net'
import { Failure } from '../base/failure.ts'

const URL_CHARACTERS_MAX = 2_048

/** A tenant's webhook: where its jobs are told, unless a call says otherwise, and what signs it. */
export type WebhookConfig = { readonly secret: string; readonly url?: string | undefined }

/**
 * Where the end of a job is to be told: the header `x-weir-webhook`, else the tenant's own address; undefined if nowhere.
 * Only tenants with a secret have webhooks: one that is not signed cannot be believed.
 */
export const webhookOf = (
  headers: Headers,
  config: WebhookConfig | undefined,
  allow_private: boolean,
): string | Failure | undefined => {
  const asked = headers.get('x-weir-webhook')
  const url = asked ?? config?.url
  if (url === undefined || url === null) return undefined
  if (config === undefined) return invalid('This tenant has no webhook secret, so nothing could be signed.')
  const fault = urlFault(url, allow_private)
  return fault === undefined ? url : invalid(fault)
}

const invalid = (says: string): Failure => new Failure('header_invalid', { says, param: 'x-weir-webhook' })

/** What is wrong with a webhook's address, as far as it can be told without asking for its name. */
export const urlFault = (text: string, allow_private: boolean): string | undefined => {
  if (text.length > URL_CHARACTERS_MAX) return `The webhook has more than ${URL_CHARACTERS_MAX} characters.`
  // Two headers are read as one with a comma and a space between them.
  if (/\s/.test(text)) return 'The webhook must be one address, without spaces.'
  const url = URL.parse(text)
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:'))
    return 'The webhook must be an http:// or https:// address.'
  if (url.username !== '' || url.password !== '') return 'The webhook must not carry a user name or password.'
  const host = bareHost(url)
  if (!allow_private && isIP(host) !== 0 && isPrivate(host)) return 'The webhook must not be a private address.'
  return undefined
}

/** The host of an address, an IPv6 one without its brackets. */
export const bareHost = (url: URL): string => url.hostname.replace(/^\[|\]$/g, '')

/** Networks that are not the public Internet: RFC 6890 and its successors in the IANA registries. */
const PRIVATE_4 = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
  ...['192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
  ...['224.0.0.0/4', '240.0.0.0/4'],
]
/** Everything but 2000::/3 is refused; these are inside it: documentation, benchmarks, ways to other addresses. */
const PRIVATE_6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']

const list = new BlockList()
for (const network of PRIVATE_4) list.addSubnet(...subnet(network), 'ipv4')
for (const network of PRIVATE_6) list.addSubnet(...subnet(network), 'ipv6')
const global_6 = new BlockList()
global_6.addSubnet('2000::', 3, 'ipv6')

function subnet(network: string): [string, number] {
  const [net, bits] = network.split('/') as [string, string]
  return [net, Number(bits)]
}

/** True if an IP address is none of the public Internet, whatever way it is written. */
export const isPrivate = (ip: string): boolean => {
  if (isIP(ip) === 4) return list.check(ip, 'ipv4')
  // An IPv4 address in IPv6 dress (::ffff:10.0.0.1) is outside 2000::/3, so it is refused with the rest.
  return !global_6.check(ip, 'ipv6') || list.check(ip, 'ipv6')
}
