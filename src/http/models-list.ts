import { Failure } from '../base/failure.ts'
import type { Model } from '../balance/catalogue.ts'
import { pathOf } from '../pipeline/frame.ts'
import type { House } from '../pipeline/house.ts'
import { mayUse, whoCalls } from '../pipeline/identify.ts'

/** The address of the list; those of single models stand below it. */
export const MODELS_PATH = '/v1/models'

/** `GET /v1/models`: what this key may use, in OpenAI's shape. */
export const listModels = (request: Request, house: House): Response | Failure => {
  const who = whoCalls(request.headers, house, house.now())
  if (who instanceof Failure) return who
  const models = [...house.catalogue.models.values()].filter((model) => mayUse(who.key, who.tenant, model.name))
  return Response.json({ object: 'list', data: models.map(shown) })
}

/** `GET /v1/models/{id}`: the id may hold slashes, raw or percent-encoded. */
export const showModel = (request: Request, house: House): Response | Failure => {
  const who = whoCalls(request.headers, house, house.now())
  if (who instanceof Failure) return who
  const id = decoded(pathOf(request.url).slice(MODELS_PATH.length + 1))
  const model = id === undefined ? undefined : house.catalogue.models.get(id)
  if (model === undefined || !mayUse(who.key, who.tenant, model.name))
    return new Failure('model_unknown', {
      says: `The model ${JSON.stringify(id ?? '')} does not exist or this key may not use it.`,
      param: 'model',
    })
  return Response.json(shown(model))
}

const shown = (model: Model) => ({ id: model.name, object: 'model', created: model.created_s, owned_by: 'weir' })

const decoded = (path: string): string | undefined => {
  try {
    return decodeURIComponent(path)
  } catch {
    return undefined // Not a percent-encoding, so not an id either.
  }
}
