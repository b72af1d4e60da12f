import { bytesBench } from './bytes.ts'
import { choiceBench } from './choice.ts'
import { directBench } from './direct.ts'
import { durabilityBench } from './durability.ts'
import { fiftyBench, thousandBench } from './fifty.ts'
import { floorBench } from './floor.ts'
import { holdBench } from './hold.ts'
import { journalBench } from './journal.ts'
import { figure, type Figures, type Options, type Result } from './kit/report.ts'
import { ledgerBench } from './ledger.ts'
import { ledgerLogBench } from './ledger-log.ts'
import { merkleBench } from './merkle.ts'
import { idleBench } from './idle.ts'
import { drawRoutingBench, routingBench } from './routing.ts'
import { peersBench } from './peers.ts'
import { scaleBench } from './scale.ts'
import { simulateBench } from './simulate.ts'
import { outageBench } from './outage.ts'
import { slowEngineBench } from './slow-engine.ts'
import { slowLedgerBench } from './slow-ledger.ts'
import { slowOfThreeBench } from './slow-of-three.ts'
import { soakBench } from './soak.ts'
import { stagesBench } from './stages.ts'
import { streamBench } from './stream.ts'
import { sweepBench } from './sweep.ts'
import { transport } from './transport.ts'
import { twelveThousandBench } from './twelve-thousand.ts'

/** A benchmark: what it measures, how long a run is and how many alternations there are unless told otherwise. */
export type Bench = {
  readonly what: string
  readonly seconds?: number
  readonly runs?: number
  readonly run: (options: Options) => Promise<Result>
  /** Draws its figures, where one bar each does not show them. */
  readonly draw?: (figures: Figures) => string
}

/** Every benchmark by its name. */
export const BENCHES: Readonly<Record<string, Bench>> = {
  floor: { what: 'CPU of a governed call against nginx proxy_pass, JSON and stream', run: floorBench },
  direct: {
    what: 'latency that the gateway adds to the engine alone, at 1 and 50 connections, and to the first token',
    run: directBench,
  },
  stages: { what: 'time of each stage of the hot path, in process', seconds: 1, run: stagesBench },
  fifty: { what: '50 clients', run: fiftyBench },
  thousand: { what: '1,000 clients', run: thousandBench },
  'twelve-thousand': {
    what: '12,000 clients at once under three limits on open files: jobs and /data',
    runs: 3,
    run: (options) => twelveThousandBench(options),
  },
  sweep: { what: 'throughput at 1, 4, 32, 128, 256 and 1,024 connections', seconds: 3, run: sweepBench },
  stream: { what: 'relayed events a second, and 5,000 open streams', run: (options) => streamBench(options) },
  'slow-engine': {
    what: '1,000 calls at once to an engine that takes 5 s',
    runs: 3,
    run: (options) => slowEngineBench(options),
  },
  'slow-ledger': {
    what: 'calls while each commit of the ledger takes 5, 50 and 500 ms longer, beside a proxy that writes inline',
    runs: 3,
    run: (options) => slowLedgerBench(options),
  },
  'slow-of-three': {
    what: 'P99 of the first token with one of three engines ten times slower, against equal weights',
    run: (options) => slowOfThreeBench(options),
  },
  outage: {
    what: 'one of three engines killed, and stopped, at 200 calls a second: what clients notice',
    runs: 3,
    run: (options) => outageBench(options),
  },
  simulate: { what: 'ten thousand lives of a simulated house', seconds: 3_600, run: simulateBench },
  idle: {
    what: 'memory of an idle worker, and of 12,000 connections that are kept alive',
    runs: 3,
    run: (options) => idleBench(options),
  },
  soak: { what: 'memory over time under load', seconds: 60, run: soakBench },
  scale: { what: 'one worker and two', run: scaleBench },
  peers: { what: 'Weir beside other gateways, those that BENCH_PEERS holds', runs: 3, run: peersBench },
  transport: { what: 'socket transport against fetch, CPU a call', seconds: 1, run: transport },
  journal: { what: 'append and durable records a second', run: journalBench },
  ledger: {
    what: 'calls posted a second, the delay of a row, holds, and what clients see of both modes',
    run: (options) => together(options, [ledgerBench, holdBench, durabilityBench]),
  },
  durability: { what: 'latency with the ledger on minus off, in both modes', run: durabilityBench },
  hold: { what: 'holds and limits on the shared table, alone and contended', run: holdBench },
  'ledger-log': { what: 'what the Merkle log costs the accountant', runs: 15, run: ledgerLogBench },
  merkle: { what: 'leaves a second, proofs, ten million leaves', runs: 3, run: ({ runs }) => merkleBench({ runs }) },
  routing: {
    what: 'strategies over simulated engines, and the time of one choice',
    runs: 5,
    run: routingBench,
    draw: drawRoutingBench,
  },
  choice: { what: 'CPU of one choice of an engine among 64, by each strategy', run: choiceBench },
  bytes: { what: 'JSON and event scanners, ns an operation', seconds: 0.1, runs: 3, run: (options) => bytes(options) },
}

/** Several benchmarks as one. */
const together = async (options: Options, benches: readonly Bench['run'][]): Promise<Result> => {
  const results: Result[] = []
  for (const bench of benches) results.push(await bench(options))
  return {
    figures: Object.assign({}, ...results.map(({ figures }) => figures)) as Figures,
    notes: results.flatMap(({ notes }) => notes),
  }
}

const bytes = ({ seconds, runs }: Options): Promise<Result> => {
  const rounds = Array.from({ length: runs }, () => bytesBench(seconds * 1000))
  const figures: Figures = Object.fromEntries(
    Object.entries(rounds[0]!).map(([name, { unit }]) => [
      name,
      figure(
        rounds.map((round) => round[name]!.value),
        unit,
      ),
    ]),
  )
  return Promise.resolve({ figures, notes: ['the best of five rounds each'] })
}
