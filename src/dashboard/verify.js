'use strict'
// Checks a proof of Weir's log with WebCrypto and nothing else. Algorithms: RFC 9162 §2.1.3.2 and §2.1.4.2 (Merkle
// proofs), C2SP signed-note and tlog-checkpoint (who signed). Nothing of the program that made the proof is used.

class Wrong extends Error {}
const at = (id) => document.getElementById(id)
const text = new TextEncoder()

// ── bytes ──
const fromBase64 = (value, what) => {
  try {
    return Uint8Array.from(atob(value), (unit) => unit.charCodeAt(0))
  } catch {
    throw new Wrong(`${what} is not base64`)
  }
}
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
const same = (one, other) => one.length === other.length && one.every((byte, nth) => byte === other[nth])
const joined = (...parts) => {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let end = 0
  for (const part of parts) all.set(part, (end += part.length) - part.length)
  return all
}
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
const hashLeaf = (leaf) => sha256(joined([0], leaf))
const join = (left, right) => sha256(joined([1], left, right))

// ── Merkle proofs ──
const half = (value) => Math.floor(value / 2)
const whole = (value) => Number.isSafeInteger(value) && value >= 0

const inclusionFault = async ({ index, size, hash, root, proof }) => {
  if (!whole(index) || index >= size) return `leaf ${index} is not in a log of ${size}`
  let [place, last] = [index, size - 1]
  for (const node of proof) {
    if (last === 0) return 'its path is too long'
    if (place % 2 === 1 || place === last) {
      hash = await join(node, hash)
      while (place % 2 === 0 && place !== 0) [place, last] = [half(place), half(last)]
    } else hash = await join(hash, node)
    ;[place, last] = [half(place), half(last)]
  }
  if (last !== 0) return 'its path is too short'
  return same(hash, root) ? undefined : 'its content is not what was signed'
}

const consistencyFault = async ({ from, to, from_root, to_root, proof }) => {
  if (!whole(from) || !whole(to) || from < 1 || from > to) return 'its sizes make no sense'
  if (from === to)
    return proof.length === 0 && same(from_root, to_root) ? undefined : 'equal sizes have different roots'
  const nodes = Number.isInteger(Math.log2(from)) ? [from_root, ...proof] : proof
  if (proof.length === 0) return 'it is empty'
  let [place, last] = [from - 1, to - 1]
  while (place % 2 === 1) [place, last] = [half(place), half(last)]
  let [old_root, new_root] = [nodes[0], nodes[0]]
  for (const node of nodes.slice(1)) {
    if (last === 0) return 'it is too long'
    if (place % 2 === 1 || place === last) {
      ;[old_root, new_root] = [await join(node, old_root), await join(node, new_root)]
      while (place % 2 === 0 && place !== 0) [place, last] = [half(place), half(last)]
    } else new_root = await join(new_root, node)
    ;[place, last] = [half(place), half(last)]
  }
  if (last !== 0) return 'it is too short'
  return same(old_root, from_root) && same(new_root, to_root) ? undefined : 'it leads to other roots'
}

// ── checkpoints ──
const readKey = async (line) => {
  const found = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/.exec(line.trim())
  if (!found) throw new Wrong('the public key is not of the form NAME+ID+BASE64')
  const typed = fromBase64(found[3], 'the public key')
  const id = hex(await sha256(joined(text.encode(`${found[1]}\n`), typed))).slice(0, 8)
  if (id !== found[2]) throw new Wrong(`the public key ${found[1]}+${found[2]} has id ${id}`)
  return { name: found[1], id, type: typed[0], bytes: typed.slice(1) }
}

const readNote = (note, what) => {
  const gap = note.lastIndexOf('\n\n')
  const [origin, size, root] = note.slice(0, gap).split('\n')
  if (gap < 0 || !origin || !/^(0|[1-9]\d{0,14})$/.test(size ?? '')) throw new Wrong(`${what} is not a checkpoint`)
  const signatures = note
    .slice(gap + 2)
    .split('\n')
    .flatMap((line) => {
      const found = /^— ([^\s+]+) (\S+)$/.exec(line)
      if (!found) return []
      const bytes = fromBase64(found[2], 'a signature')
      return [{ name: found[1], id: hex(bytes.slice(0, 4)), bytes: bytes.slice(4) }]
    })
  return {
    origin,
    size: Number(size),
    root: fromBase64(root ?? '', `the root of ${what}`),
    text: note.slice(0, gap + 1),
    signatures,
  }
}

const signedBy = async (note, keys) => {
  for (const signature of note.signatures) {
    const key = keys.find(({ name, id, type }) => name === signature.name && id === signature.id && type === 1)
    if (!key || key.name !== note.origin) continue
    let imported
    try {
      imported = await crypto.subtle.importKey('raw', key.bytes, { name: 'Ed25519' }, false, ['verify'])
    } catch {
      throw new Wrong(
        'this browser cannot check Ed25519 signatures; Chrome 137, Firefox 129 or Safari 17 and later can',
      )
    }
    if (!(await crypto.subtle.verify('Ed25519', imported, signature.bytes, text.encode(note.text))))
      throw new Wrong(`the checkpoint’s signature of ${key.name}+${key.id} is not valid`)
    return `${key.name}+${key.id}`
  }
  throw new Wrong('the checkpoint is not signed by the log’s key')
}

const heldAgainst = async (kept_text, note, consistency) => {
  const kept = readNote(kept_text, 'the kept checkpoint')
  if (kept.origin !== note.origin) throw new Wrong(`the kept checkpoint is of ${kept.origin}`)
  if (kept.size === note.size) {
    if (!same(kept.root, note.root))
      throw new Wrong('the log has another root than the kept checkpoint: history was rewritten')
    return 'the proof’s checkpoint is the one that you kept'
  }
  if (!consistency || consistency.from !== kept.size || consistency.to !== note.size)
    throw new Wrong(
      `the kept checkpoint has size ${kept.size}, the proof’s ${note.size}, and the file has no proof in between: ask for it with ?from=${kept.size}`,
    )
  const nodes = ['from_root', 'to_root'].map((name) => fromBase64(consistency[name], name))
  const proof = consistency.proof.map((node) => fromBase64(node, 'a node'))
  const claim = { from: consistency.from, to: consistency.to, from_root: nodes[0], to_root: nodes[1], proof }
  const fault = await consistencyFault(claim)
  if (fault) throw new Wrong(`the proof between the two checkpoints does not hold: ${fault}`)
  if (!same(nodes[0], kept.root) || !same(nodes[1], note.root))
    throw new Wrong('the log has another root than the kept checkpoint: history was rewritten')
  return `the log only grew since the checkpoint that you kept (size ${kept.size})`
}

// ── the bundle ──
const checkLine = async (line, nodes, note) => {
  const bytes = fromBase64(line.leaf, 'the leaf')
  let leaf
  try {
    leaf = JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return { leaf: {}, fault: 'its content cannot be read' }
  }
  if (!line.path.every((number) => nodes[number])) return { leaf, fault: 'its path names nodes that are not there' }
  const proof = line.path.map((number) => nodes[number])
  const claim = { index: line.index, size: note.size, hash: await hashLeaf(bytes), root: note.root, proof }
  const fault = await inclusionFault(claim)
  if (fault) return { leaf, fault }
  return { leaf, fault: leaf.log_index === line.index ? undefined : `it says that it is leaf ${leaf.log_index}` }
}

/** Money that people move, by kind: the account that it comes from, and the invoice's member with the sum. */
const ORDERS = {
  refund: ['revenue', 'refunds_nanodollars'],
  adjustment: ['revenue', 'adjustments_nanodollars'],
  grant: ['grants', 'grants_nanodollars'],
}

/** The orders of an invoice in a leaf of entries, in the tenant's favour; of a file without orders undefined. */
const ordersIn = (invoice, leaf) => {
  if (invoice?.orders === undefined || leaf.type !== 'entries' || !Array.isArray(leaf.entries)) return undefined
  const account = `tenant:${invoice.tenant}`
  return leaf.entries.flatMap(({ kind, at_ms, debit, credit, amount_nanodollars, call_id, reason }) => {
    const from = Object.hasOwn(ORDERS, kind) ? ORDERS[kind][0] : undefined
    const gives = debit === from && credit === account
    if (from === undefined || !(gives || (debit === account && credit === from))) return []
    if (!(at_ms >= invoice.from_ms && at_ms < invoice.to_ms)) return []
    const amount = BigInt(amount_nanodollars)
    return [{ kind, at_ms, call_id, reason, amount: gives ? amount : -amount }]
  })
}

const invoiceFault = (invoice, leaf, orders) => {
  if (orders) return orders.length > 0 ? undefined : 'it has no order of this invoice'
  if (leaf.type !== 'call') return 'it is no call'
  if (leaf.tenant !== invoice.tenant) return `it is of another tenant, ${leaf.tenant}`
  return leaf.at_ms >= invoice.from_ms && leaf.at_ms < invoice.to_ms ? undefined : 'it is outside the invoice’s time'
}

const FORMATS = ['weir-proof/1', 'weir-proof/2']

const check = async (source, key, kept) => {
  const bundle = JSON.parse(source)
  if (!FORMATS.includes(bundle.format))
    throw new Wrong(`this is not a proof file of Weir ("format": "${FORMATS.join('" or "')}")`)
  const note = readNote(bundle.checkpoint, 'the checkpoint')
  const keys = await Promise.all((key ? [key] : bundle.public_keys).map(readKey))
  const facts = [
    ['Log', note.origin],
    ['Checkpoint', `${note.size} leaves, root ${hex(note.root).slice(0, 16)}…`],
  ]
  facts.push([
    'Signed by',
    `${await signedBy(note, keys)}${key ? ', the key that you gave' : ', a key from this file: compare it with one that you know'}`,
  ])
  if (kept) facts.push(['Kept checkpoint', await heldAgainst(kept, note, bundle.consistency)])
  const nodes = bundle.nodes.map((node) => fromBase64(node, 'a node'))
  const lines = []
  const seen = new Set()
  const sums = { calls: 0, orders: 0, charge: 0n, refund: 0n, adjustment: 0n, grant: 0n }
  for (const line of bundle.lines) {
    const { leaf, fault } = await checkLine(line, nodes, note)
    const orders = ordersIn(bundle.invoice, leaf)
    const more =
      fault ??
      (bundle.invoice && invoiceFault(bundle.invoice, leaf, orders)) ??
      (seen.has(line.index) ? 'it is on the invoice twice' : undefined)
    seen.add(line.index)
    if (!more) add(sums, leaf, orders)
    lines.push({ leaf, orders, fault: more })
  }
  return { bundle, facts, lines, sums }
}

const add = (sums, leaf, orders) => {
  if (!orders) {
    sums.calls++
    sums.charge += BigInt(leaf.charge_nanodollars ?? 0)
    return
  }
  sums.orders += orders.length
  for (const { kind, amount } of orders) sums[kind] += amount
}

/** What an invoice says that its lines do not make, as [what it says, what they make]; undefined if there is nothing. */
const claimFault = (invoice, sums) => {
  const counts = invoice.orders === undefined ? ['calls'] : ['calls', 'orders']
  for (const what of counts) if (invoice[what] !== sums[what]) return [`${invoice[what]} ${what}`, `are ${sums[what]}`]
  const money = [['charge_nanodollars', sums.charge, 'of charges']]
  if (invoice.orders !== undefined) {
    for (const kind of Object.keys(ORDERS)) money.push([ORDERS[kind][1], sums[kind], `of ${kind}s`])
    money.push(['total_nanodollars', owed(sums), 'owed'])
  }
  for (const [member, sum, what] of money)
    if (String(invoice[member]) !== String(sum)) return [`${said(invoice[member])} USD ${what}`, `make ${usd(sum)}`]
  return undefined
}
const owed = ({ charge, refund, adjustment }) => charge - refund - adjustment
const said = (nanodollars) => (/^-?\d{1,30}$/.test(String(nanodollars)) ? usd(BigInt(nanodollars)) : 'no')

const verdictOf = ({ bundle, lines, sums }) => {
  const nameOf = (leaf) => leaf.id ?? (leaf.type === 'entries' ? 'orders' : 'no call')
  const broken = lines.flatMap(({ leaf, fault }, nth) => (fault ? [`line ${nth + 1} (${nameOf(leaf)})`] : []))
  if (broken.length > 0) {
    const more = broken.length > 3 ? ' and more' : ''
    return [
      false,
      `Not sound: ${broken.length} of ${lines.length} lines cannot be proved: ${broken.slice(0, 3).join(', ')}${more}`,
    ]
  }
  const { invoice } = bundle
  if (!invoice)
    return [true, `Sound: ${lines.length === 1 ? 'the call is' : `${lines.length} calls are`} in the log as shown`]
  const wrong = claimFault(invoice, sums)
  if (wrong) return [false, `Not sound: the invoice says ${wrong[0]}, and its lines ${wrong[1]}`]
  const all = `Sound: all ${lines.length} lines are in the log`
  if (invoice.orders === undefined)
    return [
      true,
      `${all}, and they make ${usd(sums.charge)} USD of charges; refunds and adjustments are not in this file`,
    ]
  return [true, `${all}, and they make ${usd(owed(sums))} USD owed: charges less refunds and adjustments`]
}

/** The sums of an invoice, for the facts above its lines. */
const sumsOf = (invoice, { calls, charge, orders, refund, adjustment, grant }) => [
  ['Charges', `${usd(charge)} USD, ${calls} calls`],
  ...(invoice.orders === undefined
    ? []
    : [
        ['Orders', `${orders}: ${usd(refund)} USD of refunds, ${usd(adjustment)} USD of adjustments`],
        ['Grants', `${usd(grant)} USD, no part of what is owed`],
      ]),
]

// ── the page ──
const usd = (nanodollars) => {
  const sign = nanodollars < 0n ? '-' : ''
  const digits = String(nanodollars < 0n ? -nanodollars : nanodollars).padStart(10, '0')
  return `${sign}${digits.slice(0, -9)}.${digits.slice(-9).replace(/0+$/, '').padEnd(2, '0')}`
}
const iso = (ms) =>
  Number.isFinite(ms) && Math.abs(ms) < 8e15 ? new Date(ms).toISOString().replace('T', ' ').slice(0, 19) : ''
const element = (tag, content, name) => {
  const made = document.createElement(tag)
  made.textContent = content
  if (name) made.className = name
  return made
}
const ROWS_MAX = 1000

/** What a line adds to what is owed; a grant adds nothing. */
const moneyOf = (leaf, orders) => {
  if (orders) {
    const owing = orders.filter(({ kind }) => kind !== 'grant')
    return owing.length > 0 ? usd(owing.reduce((sum, { amount }) => sum - amount, 0n)) : ''
  }
  return leaf.charge_nanodollars === null || leaf.charge_nanodollars === undefined
    ? ''
    : usd(BigInt(leaf.charge_nanodollars))
}
const orderName = ({ kind, amount, call_id, reason }) =>
  `${kind}${kind === 'grant' ? ` of ${usd(amount)}` : ''}${call_id ? ` of ${call_id}` : ''}: ${reason}`

const rowOf = ({ leaf, orders, fault }, nth) => {
  const row = element('tr', '', fault ? 'bad' : '')
  row.append(
    element('td', nth + 1, 'number'),
    element('td', fault ? `✗ ${fault}` : '✓ in the log', fault ? 'state' : 'state good'),
    element('td', orders ? orders.map(orderName).join('; ') : (leaf.id ?? ''), orders ? 'words' : ''),
    element('td', iso(orders ? orders[0]?.at_ms : leaf.at_ms)),
    element('td', leaf.model || (leaf.type === 'call' ? leaf.endpoint : '')),
    element('td', leaf.prompt_tokens ?? '', 'number'),
    element('td', leaf.completion_tokens ?? '', 'number'),
    element('td', moneyOf(leaf, orders), 'number'),
  )
  return row
}

const show = (good, verdict, facts = [], lines = []) => {
  at('result').hidden = false
  at('verdict').className = good ? 'good' : 'bad'
  at('verdict').textContent = `${good ? '✓' : '✗'} ${verdict}`
  at('facts').replaceChildren(...facts.flatMap(([name, value]) => [element('dt', name), element('dd', value)]))
  const numbered = lines.map((line, nth) => ({ ...line, nth }))
  const shown = [...numbered.filter(({ fault }) => fault), ...numbered.filter(({ fault }) => !fault)].slice(0, ROWS_MAX)
  at('lines').replaceChildren(...shown.sort((one, other) => one.nth - other.nth).map((line) => rowOf(line, line.nth)))
  at('more').textContent =
    lines.length > ROWS_MAX ? `${ROWS_MAX} of ${lines.length} lines are shown, those that do not hold first.` : ''
  document.title = `${good ? '✓' : '✗'} Weir: check a proof`
}

let source = ''
const run = async () => {
  at('again').disabled = source === ''
  try {
    const result = await check(
      source,
      at('key').value.trim(),
      at('kept').value.trim() && `${at('kept').value.trim()}\n`,
    )
    const [good, verdict] = verdictOf(result)
    const { invoice } = result.bundle
    const facts = invoice
      ? [
          ['Tenant', invoice.tenant],
          ['Time', `${iso(invoice.from_ms)} to ${iso(invoice.to_ms)}`],
          ...sumsOf(invoice, result.sums),
          ...result.facts,
        ]
      : result.facts
    show(good, verdict, facts, result.lines)
  } catch (cause) {
    show(false, cause instanceof Wrong ? `Not sound: ${cause.message}` : `The file cannot be checked: ${cause.message}`)
  }
}
const take = async (file) => {
  if (!file) return
  source = await file.text()
  await run()
}
at('file').addEventListener('change', (event) => take(event.target.files[0]))
at('again').addEventListener('click', run)
for (const name of ['dragover', 'dragleave', 'drop'])
  at('drop').addEventListener(name, (event) => {
    event.preventDefault()
    at('drop').classList.toggle('over', name === 'dragover')
    if (name === 'drop') take(event.dataTransfer.files[0])
  })
source = at('bundle').textContent.trim()
if (source) run()
