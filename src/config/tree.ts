/** How a value is shown in a fault: by the template that stood in the file, if its path had one. */
export type Templates = ReadonlyMap<string, string>

/** A mapping that came from outside: any key, any value. */
export type Tree = Readonly<Record<string, unknown>>

/** Whether a value is a mapping. */
export const isTree = (value: unknown): value is Tree =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
