'use strict'
const EVERY_MS = 2000
const POINTS_MAX = 150
const at = (id) => document.getElementById(id)
const show = (id, text) => void (at(id).textContent = text)

/** Prometheus text as a list of { name, labels, value }. */
const parse = (text) =>
  text.split('\n').flatMap((line) => {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line)
    if (!found) return []
    const labels = {}
    for (const [, name, value] of (found[2] || '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === 'n' ? '\n' : letter))
    return [{ name: found[1], labels, value: Number(found[3].replace('Inf', 'Infinity')) }]
  })

const sum = (series, name, labels = {}) =>
  series
    .filter((one) => one.name === name && Object.entries(labels).every(([label, value]) => one.labels[label] === value))
    .reduce((total, one) => total + one.value, 0)

/** Samples of families that begin with a prefix, one object for each value of a label. */
const grouped = (series, prefix, label) => {
  const rows = new Map()
  for (const { name, labels, value } of series) {
    if (!name.startsWith(prefix) || labels[label] === undefined) continue
    const row = rows.get(labels[label]) || { name: labels[label] }
    row[name.slice(prefix.length)] = value
    rows.set(labels[label], row)
  }
  return [...rows.values()]
}

const number = (value) => value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 })
const seconds = (value) =>
  value === undefined || Number.isNaN(value) ? '–' : value < 1 ? `${number(value * 1000)} ms` : `${number(value)} s`

const cell = (content, kind = '') => {
  const td = document.createElement('td')
  td.className = kind
  if (content instanceof Node) td.append(content)
  else td.textContent = content
  return td
}

/** A name, cut where it is too long for its column; whole when one points at it. */
const named = (text) => {
  const td = cell(text, 'name')
  td.title = text
  return td
}

const bar = (share) => {
  const box = document.createElement('span')
  const fill = document.createElement('i')
  box.className = 'bar'
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`
  box.append(fill)
  return box
}

const fill = (id, rows, empty) => {
  const body = at(id)
  body.replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement('tr')
      row.append(...cells)
      return row
    }),
  )
  if (rows.length > 0) return
  const row = document.createElement('tr')
  const only = cell(empty, 'note')
  only.colSpan = 20
  row.append(only)
  body.append(row)
}

const points = []
const draw = (rate) => {
  points.push(rate)
  if (points.length > POINTS_MAX) points.shift()
  const top = Math.max(1, ...points)
  const x = (index) => 300 - (points.length - 1 - index) * (300 / (POINTS_MAX - 1))
  const line = points.map((value, index) => `${x(index).toFixed(1)},${(78 - (value / top) * 74).toFixed(1)}`).join(' L')
  const path = (d, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', 'path')
    for (const [name, value] of Object.entries({ d, ...attributes })) element.setAttribute(name, value)
    return element
  }
  at('flow').replaceChildren(
    path(`M${x(0).toFixed(1)},80 L${line} L300,80 Z`, { fill: 'var(--wash)' }),
    path(`M${line}`, { fill: 'none', stroke: 'var(--water)', 'stroke-width': 2 }),
  )
  show('flow-note', `Last ${Math.round((POINTS_MAX * EVERY_MS) / 60000)} minutes; highest ${number(top)}.`)
}

let before
const rates = (series) => {
  const now = performance.now()
  const totals = {
    calls: sum(series, 'weir_requests_total'),
    tokens: sum(series, 'weir_tokens_total', { kind: 'completion' }),
    failed: sum(series, 'weir_failures_total'),
    first_s: sum(series, 'weir_first_token_seconds_sum'),
    first_n: sum(series, 'weir_first_token_seconds_count'),
  }
  if (before) {
    const s = (now - before.now) / 1000
    // A house that was started anew begins at 0.
    const rate = (name) => Math.max(0, totals[name] - before.totals[name]) / s
    show('rate', number(rate('calls')))
    show('tokens', number(rate('tokens')))
    show('failed', number(rate('failed')))
    at('failed').className = rate('failed') > 0 ? 'bad' : ''
    show('first', seconds((totals.first_s - before.totals.first_s) / (totals.first_n - before.totals.first_n)))
    draw(rate('calls'))
  }
  before = { now, totals }
}

const paint = (series) => {
  rates(series)
  show('flight', number(sum(series, 'weir_worker_in_flight')))
  show('streams', number(sum(series, 'weir_worker_open_streams')))
  show('lag', seconds(sum(series, 'weir_accountant_lag_seconds')))
  const engines = grouped(series, 'weir_engine_', 'engine').map((engine) => [
    named(engine.name),
    engine.healthy ? cell('healthy', 'good') : cell(engine.cooling_seconds > 0 ? 'cooling' : 'on probation', 'warn'),
    cell(bar(engine.in_flight / engine.capacity)),
    cell(`${number(engine.in_flight)} / ${number(engine.capacity)}`, 'number'),
    cell(number(engine.answered_total), 'number'),
    cell(number(engine.failed_total), engine.failed_total > 0 ? 'number bad' : 'number'),
    cell(seconds(engine.latency_seconds), 'number'),
  ])
  fill('engines', engines, 'No engine is configured.')
  const failures = series
    .filter(({ name, value }) => name === 'weir_failures_total' && value > 0)
    .sort((one, other) => other.value - one.value)
    .map(({ labels, value }) => [cell(labels.code), cell(labels.status, 'number'), cell(number(value), 'number')])
  fill('failures', failures, 'None since the start.')
  const workers = grouped(series, 'weir_worker_', 'worker').map((worker) => [
    cell(worker.name),
    worker.live ? cell('live', 'good') : cell('not live', 'bad'),
    cell(number(worker.in_flight), 'number'),
    cell(number(worker.open_streams), 'number'),
    cell(seconds(worker.loop_lag_seconds), 'number'),
    cell(`${number(worker.resident_bytes / 1e6)} MB`, 'number'),
    cell(`${seconds(worker.heartbeat_age_seconds)} ago`, 'number'),
  ])
  fill('workers', workers, 'No worker has started.')
}

const KEY = 'weir-admin-token'
const calls = async () => {
  const token = sessionStorage.getItem(KEY)
  at('login').hidden = token !== null
  at('calls-box').hidden = token === null
  if (token === null) return
  const answer = await fetch('/admin/calls?limit=25', { headers: { authorization: `Bearer ${token}` } })
  if (answer.status === 401) sessionStorage.removeItem(KEY)
  if (!answer.ok) return show('calls-note', (await answer.json()).error.message)
  show('calls-note', '')
  const rows = (await answer.json()).data.map((call) => [
    cell(new Date(call.at).toLocaleTimeString()),
    named(call.tenant),
    named(call.model),
    named(call.engine),
    cell(String(call.status), call.status < 400 ? 'number' : 'number bad'),
    cell(call.ending, call.ending === 'whole' ? 'good' : 'warn'),
    cell(number(call.prompt_tokens), 'number'),
    cell(number(call.completion_tokens), 'number'),
    cell(call.charge_nanodollars === null ? '–' : (Number(call.charge_nanodollars) / 1e9).toFixed(6), 'number'),
    cell(seconds(call.first_token_ms / 1000), 'number'),
    cell(seconds(call.total_ms / 1000), 'number'),
  ])
  fill('calls', rows, 'No call has been posted yet.')
}

const ready = async () => {
  const answer = await fetch('/ready')
  const { missing = [] } = await answer.json()
  show('state', answer.ok ? 'ready' : `not ready: ${missing.join(', ')}`)
  at('state').className = `state ${answer.ok ? 'good' : 'bad'}`
}

const turn = async () => {
  try {
    const metrics = fetch('/metrics').then((answer) => answer.text())
    await Promise.all([metrics.then((text) => paint(parse(text))), ready(), calls()])
  } catch {
    show('state', 'not reachable')
    at('state').className = 'state bad'
  }
  setTimeout(turn, document.hidden ? EVERY_MS * 5 : EVERY_MS)
}

at('login').addEventListener('submit', (event) => {
  event.preventDefault()
  sessionStorage.setItem(KEY, at('token').value.trim())
  at('token').value = ''
  void calls()
})
at('logout').addEventListener('click', () => {
  sessionStorage.removeItem(KEY)
  show('calls-note', 'The token stays in this tab.')
  void calls()
})
void turn()
