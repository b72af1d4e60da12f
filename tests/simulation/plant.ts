/** Faults that can be planted in the wiring of the simulation, each of which an invariant must catch. */
export const PLANTS = {
  skip_settle: 'a call ends and its hold stays',
  double_settle: 'a hold is settled twice',
  ending_lost: 'the hold is settled and the ending never written',
  reap_early: 'a dead worker’s share of budgets goes back before its journal is posted',
  never_reaped: 'a dead worker’s counts are never given back',
  post_again: 'intents that are delivered twice are posted twice',
  ack_early: 'strict: the answer is let go before its ending is on disk',
  disk_lies: 'a sync that did nothing succeeds',
  hold_nothing: 'budgets are asked for nothing before the call and for all after it',
  rate_forgotten: 'a new worker begins with a fresh minute',
  rate_forgotten_by_house: 'a new house begins with a fresh minute',
  cold_start_empty: 'a house starts without what the ledger says was spent',
  settled_elsewhere: 'a charge goes to the window in which the call ends',
} as const

export type Plant = keyof typeof PLANTS
