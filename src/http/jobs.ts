import { Failure } from '../base/failure.ts'
import type { JobView, OpenJobs } from '../jobs/open-jobs.ts'
import { stateOf } from '../jobs/show.ts'
import { pathOf } from '../pipeline/frame.ts'
import type { House } from '../pipeline/house.ts'
import { whoCalls } from '../pipeline/identify.ts'

/** Where jobs are; each has its id below it. */
export const JOBS_PATH = '/v1/jobs'

/** `GET /v1/jobs/{id}`: the job, with its answer once it is done. A house without jobs has none. */
export const showJob = (request: Request, house: House, jobs: OpenJobs | undefined): Response | Failure =>
  answered(request, house, jobs?.show)

/** `DELETE /v1/jobs/{id}`: 200 if the job is over or will never begin, 202 if a run has to be broken off first. */
export const cancelJob = (request: Request, house: House, jobs: OpenJobs | undefined): Response | Failure =>
  answered(request, house, jobs?.cancel)

const answered = (
  request: Request,
  house: House,
  find: ((id: string, tenant: string) => JobView | Failure) | undefined,
): Response | Failure => {
  const who = whoCalls(request.headers, house, house.now())
  if (who instanceof Failure) return who
  const id = pathOf(request.url).slice(JOBS_PATH.length + 1)
  const found = find?.(id, who.tenant.name) ?? new Failure('not_found')
  if (found instanceof Failure) return found
  const state = stateOf(found.job)
  const open = state === 'queued' || state === 'running'
  return new Response(found.json as BodyInit, {
    status: request.method === 'DELETE' && open ? 202 : 200,
    headers: { 'content-type': 'application/json', ...(open && { 'retry-after': '1' }) },
  })
}
