import { instantMs } from './instant.ts'
import type { ModelConfig, PriceConfig } from './schema.ts'

/** A price and the time from which it is in force; 0 for the one before all changes. */
export type DatedPrice = { readonly from_ms: number; readonly price: PriceConfig }

/** All prices of a checked model, oldest first; empty if it is free. */
export const datedPrices = ({
  price,
  price_changes = [],
}: Pick<ModelConfig, 'price'> & Partial<Pick<ModelConfig, 'price_changes'>>): DatedPrice[] =>
  price === undefined
    ? []
    : [
        { from_ms: 0, price },
        ...price_changes.map(({ from, ...changed }) => ({ from_ms: instantMs(from) ?? 0, price: changed })),
      ]

/** The last of some dated things that is in force at a time; undefined before the first. Requires oldest first. */
export const inForce = <Dated extends { readonly from_ms: number }>(
  list: readonly Dated[],
  at_ms: number,
): Dated | undefined => {
  for (let at = list.length - 1; at >= 0; at--) if (list[at]!.from_ms <= at_ms) return list[at]
  return undefined
}
