/** Every bound that is not a setting: a name, a unit, one home. Relations are checked when the module loads. */
export const limits = {
  /** Worker columns in the shared table. */
  workers_max: 32,
  /** Workers of a house: one column is the accountant's, one is for the worker that replaces another. */
  workers_at_once_max: 30,
  /** Engines in a configuration. */
  engines_max: 256,
  /** Levels of nesting in a JSON body. */
  json_depth_max: 128,
  /** One line of an event stream. */
  sse_line_bytes_max: 16 * 1024 * 1024,
  /** An answer that is not a stream and must be whole before its status goes out. */
  answer_bytes_max: 64 * 1024 * 1024,
  /** The response head of an engine. */
  answer_head_bytes_max: 64 * 1024,
  /** Request bodies that one worker holds at once, all calls together. */
  bodies_bytes_max: 512 * 1024 * 1024,
  /** One record of the journal. */
  record_bytes_max: 256 * 1024,
  /** One segment file of the journal. */
  segment_bytes: 16 * 1024 * 1024,
  /** A stored text field. */
  text_bytes_max: 4 * 1024,
  /** One of the client's own names: model, end user, session. */
  name_bytes_max: 256,
  /** A secret that somebody chose: shorter ones can be guessed. */
  secret_characters_min: 16,
  /** Engines tried in one call. */
  attempts_max: 3,
  /** Rows in one answer of the admin API. */
  page_rows_max: 1000,
} as const

if (limits.record_bytes_max * 4 > limits.segment_bytes) throw new Error('limits: a segment must hold several records')
