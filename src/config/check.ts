import { X509Certificate } from 'node:crypto'
import { demo_models } from './demo.ts'
import { type FaultList, join, shown } from './faults.ts'
import { INSTANT, instantMs } from './instant.ts'
import { checkKnown, checkUnique, nameEntries, namesOf, type Row, rows, type See, texts } from './rows.ts'
import { Timeouts } from './serving-schema.ts'
import { isTree, type Templates, type Tree } from './tree.ts'

/**
 * Adds what a schema cannot say: names that must be known or unique, settings that exclude or bound each other. Works on a
 * tree that may still be faulty, so that one start reports everything.
 *
 * `written` is the tree as the file, flags and variables made it, `tree` the same with defaults: a default never makes
 * a fault beside a setting that somebody wrote.
 */
export const crossFaults = (tree: unknown, written: unknown, templates: Templates, faults: FaultList): void => {
  const root = isTree(tree) ? tree : {}
  const see: See = (path, value) => templates.get(path) ?? shown(value)
  checkServer(root, faults)
  checkEngines(root, see, faults)
  checkModels(root, see, faults)
  checkTenants(root, see, faults)
  checkHedges(isTree(written) ? written : {}, faults)
  checkTimeouts(root, isTree(written) ? written : {}, faults)
}

const checkServer = (root: Tree, faults: FaultList) => {
  const server = isTree(root['server']) ? root['server'] : {}
  const { port, ops_port, host, ops_host } = server as Record<'port' | 'ops_port' | 'host' | 'ops_host', unknown>
  const any = new Set<unknown>(['0.0.0.0', '::', '*'])
  const meet = host === ops_host || any.has(host) || any.has(ops_host)
  if (typeof port !== 'number' || port === 0 || port !== ops_port || !meet) return
  faults.add(
    'server.ops_port',
    `${port} is also the port of the data plane`,
    'allowed: another port, or 0 for a free one',
  )
}

const checkEngines = (root: Tree, see: See, faults: FaultList) => {
  const engines = rows(root, 'engines')
  checkUnique(nameEntries(engines), see, faults)
  for (const [path, { url, ca }] of engines) {
    const wrong = typeof url === 'string' ? urlFault(url, see(join(path, 'url'), url)) : undefined
    if (wrong) faults.add(join(path, 'url'), ...wrong)
    const of_ca = typeof ca === 'string' ? caFault(ca, url) : undefined
    if (of_ca) faults.add(join(path, 'ca'), ...of_ca)
  }
}

const PEM = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g

const caFault = (text: string, url: unknown): readonly [found: string, allowed: string] | undefined => {
  if (typeof url === 'string' && !/^https:/i.test(url))
    return ['is of no use to an engine that is not asked over https://', 'allowed: an https:// address, or no ca']
  const found = text.match(PEM) ?? []
  const nth = found.findIndex((pem) => !isCertificate(pem))
  if (found.length > 0 && nth < 0) return undefined
  const what = nth < 0 ? 'holds no certificate' : `holds as number ${nth + 1} what is not a certificate`
  return [what, 'allowed: certificates in PEM, -----BEGIN CERTIFICATE----- and so on']
}

const isCertificate = (pem: string): boolean => {
  try {
    return new X509Certificate(pem).fingerprint256 !== ''
  } catch {
    return false
  }
}

const urlFault = (text: string, what: string): readonly [found: string, allowed: string] | undefined => {
  const url = URL.parse(text)
  if (!url || /[\s\\]/.test(text)) {
    return [`${what} is not an address`, 'allowed: http://host:port/path or https://host/path']
  }
  if (url.username !== '' || url.password !== '') {
    return ['holds a user name or password', 'allowed: the credential as key of the engine']
  }
  return text.includes('#') ? [`${what} holds a #`, 'allowed: an address without #'] : undefined
}

const checkModels = (root: Tree, see: See, faults: FaultList) => {
  const models = rows(root, 'models')
  const model_names = namesOf(models)
  const engine_names = namesOf(rows(root, 'engines'))
  checkUnique(nameEntries(models), see, faults)
  for (const [path, model] of models) {
    const targets = rows(model, 'targets', path)
    const engines = targets.flatMap(([at, { engine }]): [string, string][] =>
      typeof engine === 'string' ? [[join(at, 'engine'), engine]] : [],
    )
    checkKnown(engines, engine_names, 'engine', see, faults)
    checkTargetsDiffer(model['name'], targets, faults)
    const fallbacks = texts(model, 'fallbacks', path)
    checkKnown(fallbacks, model_names, 'model', see, faults)
    checkUnique(fallbacks, see, faults)
    checkPrice(path, model, faults)
  }
  checkCircles(models, faults)
}

const checkHedges = (written: Tree, faults: FaultList) => {
  for (const [path, { hedge }] of rows(written, 'models')) {
    const { min_ms, max_ms } = isTree(hedge) ? hedge : {}
    if (typeof min_ms !== 'number' || typeof max_ms !== 'number' || min_ms <= max_ms) continue
    faults.add(
      join(join(path, 'hedge'), 'min_ms'),
      `${min_ms} is more than max_ms, ${max_ms}`,
      'allowed: at most max_ms',
    )
  }
}

const checkTargetsDiffer = (name: unknown, targets: readonly Row[], faults: FaultList) => {
  const first = new Map<string, string>()
  for (const [path, { engine, model }] of targets) {
    const same = JSON.stringify([engine, model ?? name])
    const earlier = first.get(same)
    if (earlier === undefined) first.set(same, path)
    else faults.add(path, `is the same engine and model as ${earlier}`, 'allowed: one with the sum of the weights')
  }
}

const checkPrice = (path: string, model: Tree, faults: FaultList) => {
  const priced = model['price'] !== undefined
  if (!priced && model['free'] === false) {
    faults.add(join(path, 'price'), 'is missing', 'needed: a price, or free: true on purpose')
  }
  if (priced && model['free'] === true) {
    faults.add(join(path, 'free'), 'true stands beside a price', 'allowed: one of the two')
  }
  checkPriceChanges(path, model, priced, faults)
}

const checkPriceChanges = (path: string, model: Tree, priced: boolean, faults: FaultList) => {
  const changes = rows(model, 'price_changes', path)
  if (changes.length > 0 && !priced)
    faults.add(join(path, 'price_changes'), 'stands without a price', 'needed: price, which they change')
  let before_ms = 0
  for (const [at, { from }] of changes) {
    if (typeof from !== 'string' || !INSTANT.test(from)) continue
    const from_ms = instantMs(from)
    if (from_ms === undefined)
      faults.add(join(at, 'from'), `${shown(from)} is in no calendar`, 'allowed: a time since 1970')
    else if (from_ms <= before_ms)
      faults.add(join(at, 'from'), `${shown(from)} is not after the one before`, 'allowed: oldest first, each once')
    before_ms = Math.max(before_ms, from_ms ?? 0)
  }
}

/** Faults every fallback that leads back to a model on the way to it. Linear in models and fallbacks. */
const checkCircles = (models: readonly Row[], faults: FaultList) => {
  const by_name = new Map(models.map((row) => [row[1]['name'], row]))
  const done = new Set<string>()
  const way = new Set<string>()
  const visit = (name: string): void => {
    const row = by_name.get(name)
    if (!row || done.has(name)) return
    way.add(name)
    for (const [path, next] of texts(row[1], 'fallbacks', row[0])) {
      if (!way.has(next)) visit(next)
      else faults.add(path, `leads back in a circle: ${circle([...way], next)}`, 'allowed: fallbacks that end')
    }
    way.delete(name)
    done.add(name)
  }
  for (const name of namesOf(models)) visit(name)
}

const circle = (way: readonly string[], back: string): string => {
  const round = [...way.slice(way.indexOf(back)), back]
  return (round.length > 8 ? [...round.slice(0, 4), '…', ...round.slice(-3)] : round).join(' → ')
}

const checkTenants = (root: Tree, see: See, faults: FaultList) => {
  const tenants = rows(root, 'tenants')
  const models = rows(root, 'models')
  // With neither engines nor models configured, the demo's are served.
  const demo = models.length === 0 && rows(root, 'engines').length === 0
  const zones = new Map<string, boolean>()
  const model_names = demo ? demo_models : namesOf(models)
  checkUnique(nameEntries(tenants), see, faults)
  for (const [path, tenant] of tenants) {
    const allowed = texts(tenant, 'models', path)
    checkKnown(allowed, model_names, 'model', see, faults)
    checkUnique(allowed, see, faults)
    checkBudgets(rows(tenant, 'budgets', path), zones, see, faults)
  }
}

const checkBudgets = (budgets: readonly Row[], zones: Map<string, boolean>, see: See, faults: FaultList) => {
  const first = new Map<string, string>()
  for (const [path, { per, timezone }] of budgets) {
    if (typeof timezone === 'string' && !isTimeZone(timezone, zones)) {
      const found = `${see(join(path, 'timezone'), timezone)} is not a time zone`
      faults.add(join(path, 'timezone'), found, 'allowed: an IANA name such as UTC or Asia/Seoul')
    }
    const same = JSON.stringify([per, timezone])
    const earlier = first.get(same)
    if (earlier === undefined) first.set(same, path)
    else faults.add(path, `is for the same window as ${earlier}`, 'allowed: one budget a window')
  }
}

/** Whether the platform knows a zone. `zones` remembers, because asking costs tens of microseconds. */
const isTimeZone = (name: string, zones: Map<string, boolean>): boolean => {
  const seen = zones.get(name)
  if (seen !== undefined) return seen
  let known = true
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
  } catch {
    known = false
  }
  zones.set(name, known)
  return known
}

/**
 * A timeout that somebody wrote must be able to run out before the whole call does; one that stands at its default may be
 * longer than a short `total_ms`, which then simply comes first.
 */
const checkTimeouts = (root: Tree, written: Tree, faults: FaultList) => {
  const house = isTree(root['timeouts']) ? root['timeouts'] : {}
  const sections: Row[] = [['', written], ...rows(written, 'models')]
  for (const [base, row] of sections) {
    const own = row['timeouts']
    if (!isTree(own)) continue
    const total = own['total_ms'] ?? house['total_ms']
    for (const key of Object.keys(Timeouts.properties)) {
      const value = own[key]
      if (typeof value !== 'number' || typeof total !== 'number' || value <= total) continue
      const allowed = `allowed: at most total_ms, which is ${total}`
      faults.add(join(join(base, 'timeouts'), key), `${value} is longer than the whole call may take`, allowed)
    }
  }
}
