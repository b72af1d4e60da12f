import { expect, test } from 'bun:test'
import { type Per, windowAt, windowClock } from '../../src/base/windows.ts'
import { forAll, pick } from '../kit/wait.ts'

const HOUR_MS = 3_600_000
const iso = (ms: number) => new Date(ms).toISOString().replace(':00.000Z', 'Z')

test.each([
  // per, zone, instant, start, end, hours
  ['month', 'Asia/Seoul', '2026-07-31T14:59:59Z', '2026-06-30T15:00Z', '2026-07-31T15:00Z', 744],
  ['month', 'Asia/Seoul', '2026-07-31T15:00:00Z', '2026-07-31T15:00Z', '2026-08-31T15:00Z', 744],
  ['day', 'Europe/Amsterdam', '2026-10-25T12:00:00Z', '2026-10-24T22:00Z', '2026-10-25T23:00Z', 25],
  ['day', 'Europe/Amsterdam', '2026-03-29T12:00:00Z', '2026-03-28T23:00Z', '2026-03-29T22:00Z', 23],
  ['week', 'UTC', '2026-11-29T23:59:59Z', '2026-11-23T00:00Z', '2026-11-30T00:00Z', 168],
  ['week', 'UTC', '2026-11-30T00:00:00Z', '2026-11-30T00:00Z', '2026-12-07T00:00Z', 168],
  ['week', 'Europe/Amsterdam', '2026-10-25T22:59:59Z', '2026-10-18T22:00Z', '2026-10-25T23:00Z', 169],
  ['month', 'America/New_York', '2026-12-31T23:00:00Z', '2026-12-01T05:00Z', '2027-01-01T05:00Z', 744],
  // Clocks skip midnight: the day begins at one o'clock.
  ['day', 'America/Sao_Paulo', '2018-11-04T03:00:00Z', '2018-11-04T03:00Z', '2018-11-05T02:00Z', 23],
  // Clocks go back over midnight: 28 October comes twice, its day begins once.
  ['day', 'America/St_Johns', '1990-10-28T03:00:00Z', '1990-10-28T02:30Z', '1990-10-29T03:30Z', 25],
  // A zone that left out the whole of 30 December.
  ['day', 'Pacific/Apia', '2011-12-30T09:59:59Z', '2011-12-29T10:00Z', '2011-12-30T10:00Z', 24],
  ['day', 'Pacific/Apia', '2011-12-30T10:00:00Z', '2011-12-30T10:00Z', '2011-12-31T10:00Z', 24],
] as const)('the %s in %s at %s runs %s to %s (%p h)', (per, zone, at, start, end, hours) => {
  const window = windowAt(per, zone, Date.parse(at))
  expect([iso(window.start_ms), iso(window.end_ms)]).toEqual([start, end])
  expect((window.end_ms - window.start_ms) / HOUR_MS).toBe(hours)
})

test('the whole of time is one window', () =>
  expect(windowAt('total', 'UTC', 1)).toEqual({ index: 1, start_ms: 0, end_ms: Infinity }))

test.each(['day', 'week', 'month'] as const)('the first %s of the epoch has an index of at least 1 anywhere', (per) => {
  for (const zone of ['UTC', 'Pacific/Niue', 'Pacific/Kiritimati'])
    expect(windowAt(per, zone, 0).index).toBeGreaterThanOrEqual(1)
})

test('an unknown zone throws', () => expect(() => windowAt('day', 'Mars/Olympus', 0)).toThrow())

const ZONES = Intl.supportedValuesOf('timeZone')
const PERS: readonly Per[] = ['day', 'week', 'month']

test('windows tile time: no gap, no overlap, growing index, and edges lie at the start of a local day', () =>
  forAll(300, (roll) => {
    const zone = pick(roll, ZONES)
    const per = pick(roll, PERS)
    let at_ms = roll(2 ** 31) * 1_000 + roll(1_000)
    let before = windowAt(per, zone, at_ms)
    if (before.start_ms > at_ms || before.end_ms <= at_ms) throw new Error(`${zone} ${per} ${at_ms}: not inside`)
    for (let step = 0; step < 20; step++) {
      at_ms = before.end_ms
      if (windowAt(per, zone, at_ms - 1).index !== before.index) throw new Error(`${zone} ${per} ${at_ms}: ends early`)
      const after = windowAt(per, zone, at_ms)
      if (after.start_ms !== before.end_ms) throw new Error(`${zone} ${per} ${at_ms}: gap or overlap`)
      if (after.index <= before.index) throw new Error(`${zone} ${per} ${at_ms}: index`)
      const inside = after.start_ms + roll(after.end_ms - after.start_ms)
      if (windowAt(per, zone, inside).index !== after.index) throw new Error(`${zone} ${per} ${inside}: torn`)
      before = after
    }
  }))

test('edges agree with the calendar of Intl, an independent reader of the same zones', () =>
  forAll(200, (roll) => {
    const zone = pick(roll, ZONES)
    const at_ms = Date.UTC(2020 + roll(15), roll(12), 1 + roll(28), roll(24), roll(60))
    const format = new Intl.DateTimeFormat('en-CA', { timeZone: zone, dateStyle: 'short' })
    const weekday = new Intl.DateTimeFormat('en-US', { timeZone: zone, weekday: 'short' })
    const day = windowAt('day', zone, at_ms)
    const month = windowAt('month', zone, at_ms)
    const week = windowAt('week', zone, at_ms)
    const faults = [
      format.format(day.start_ms) !== format.format(at_ms) && 'day starts on another date',
      format.format(day.start_ms - 1) >= format.format(at_ms) && 'day starts late',
      format.format(day.end_ms) <= format.format(at_ms) && 'day ends early',
      format.format(month.start_ms).slice(-2) !== '01' && 'month does not start on the first',
      format.format(month.start_ms - 1).slice(0, 7) >= format.format(at_ms).slice(0, 7) && 'month starts late',
      weekday.format(week.start_ms) !== 'Mon' && 'week does not start on a Monday',
    ].filter((fault) => fault !== false)
    if (faults.length > 0) throw new Error(`${zone} ${at_ms}: ${faults.join(', ')}`)
  }))

test('the clock answers the same object until the edge', () => {
  const clock = windowClock('month', 'Asia/Seoul')
  const edge_ms = Date.parse('2026-07-31T15:00:00Z')
  const july = clock(edge_ms - 1)
  expect(clock(july.start_ms)).toBe(july)
  const august = clock(edge_ms)
  expect(august.index).toBe(july.index + 1)
  expect(clock(edge_ms - 1)).toEqual(july)
})
