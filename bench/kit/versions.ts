import { release } from 'node:os'
import weir from '../../package.json'

/** Versions of what a benchmark stands on; a tool that is not there is left out. */
export const versions = (): Readonly<Record<string, string>> => ({
  weir: weir.version,
  bun: Bun.version,
  kernel: release(),
  ...said('nginx', ['nginx', '-v'], /nginx\/(\S+)/),
  ...said('wrk', ['wrk', '-v'], /wrk \S*?(\d[\w.]*)/),
})

const said = (name: string, cmd: string[], pattern: RegExp): Record<string, string> => {
  if (Bun.which(cmd[0]!) === null) return {}
  const { stdout, stderr } = Bun.spawnSync(cmd)
  const found = pattern.exec(`${stdout}${stderr}`)
  return found ? { [name]: found[1]! } : {}
}
