import { startDemoEngine } from '../engines/demo/engine.ts'
import type { ChildContext, ChildLife } from './child.ts'

/** The demo engine as a process of the house, on loopback: what is served when nothing is configured. */
export const runDemo = async ({ ready }: ChildContext): Promise<ChildLife> => {
  const engine = startDemoEngine({ port: 0, host: '127.0.0.1' })
  ready(engine.port)
  return {
    onConfig: () => undefined,
    drain: async () => {
      await engine.stop()
    },
  }
}
