/** Ids of calls that are told apart in one answer; what comes later belongs to the last one at its index. */
const IDS_MAX = 256
const ID_CHARACTERS_MAX = 128

type Place = { readonly ids: string[]; at: number }

/**
 * The tool calls of one answer. Engines give several calls the same index, or none at all: a new id that is not empty, at
 * an index where a call has one already, begins another call. Only an id beside a name counts: some engines make up an id
 * for every piece of one call's arguments.
 */
export class ToolCalls {
  readonly #places = new Map<string, Place>()
  #count = 0

  /**
   * What tells the call of a delta from others of its choice: its index, and `.1`, `.2` … for calls after the first there.
   * Asked once a delta, with its id if it has a name.
   */
  nameOf(choice: number, index: number, id: unknown): string {
    const given = typeof id === 'string' ? id.slice(0, ID_CHARACTERS_MAX) : ''
    const key = `${choice} ${index}`
    const place = this.#places.get(key)
    if (given !== '' && this.#count < IDS_MAX) this.#take(key, place, given)
    const at = (place ?? this.#places.get(key))?.at ?? 0
    return at === 0 ? String(index) : `${index}.${at}`
  }

  #take(key: string, place: Place | undefined, id: string): void {
    if (place === undefined) {
      this.#places.set(key, { ids: [id], at: 0 })
      this.#count++
      return
    }
    const known = place.ids.indexOf(id)
    place.at = known >= 0 ? known : place.ids.push(id) - 1
    if (known < 0) this.#count++
  }
}
