import { type Catalogue, type Model, withFallbacks } from '../balance/catalogue.ts'
import type { Body } from './body.ts'
import type { Endpoint } from './endpoints.ts'
import { mediaParts } from './media-parts.ts'

type Asked = {
  readonly body: Body
  readonly model: Model
  readonly catalogue: Catalogue
  readonly arrival: { readonly endpoint: Endpoint }
}

/**
 * The pictures in the prompt of a request, which are charged by the price `image`. Nothing is looked for, and 0 answered,
 * where neither the model nor a fallback has such a price.
 */
export const imagesIn = ({ body, model, catalogue, arrival }: Asked): number => {
  if (!pricesImages(model, catalogue)) return 0
  const { values } = body.scan
  const prompts = new Set([values[arrival.endpoint.prompt_field], values.messages])
  let images = 0
  for (const range of prompts) if (range !== undefined) images += mediaParts(body.bytes, range).images
  return images
}

const known = new WeakMap<Model, boolean>()

const pricesImages = (model: Model, catalogue: Catalogue): boolean => {
  let does = known.get(model)
  if (does === undefined) {
    const may_charge = withFallbacks(model, catalogue)
    does = may_charge.some(({ prices }) => prices.some(({ image_nanodollars }) => image_nanodollars > 0))
    known.set(model, does)
  }
  return does
}
