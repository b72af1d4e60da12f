import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse } from './kit/house.ts'
import { completed, readme } from './kit/readme.ts'

setDefaultTimeout(60_000)

const cells = (text: string): string => text.replace(/ +/g, ' ').replace(/^\|[-| ]+\|$/gm, '|---|')

test('the tables of the README are those of the code', () => {
  // The formatter pads the cells.
  expect(cells(readme())).toBe(cells(completed(readme())))
})

test('the README names no host but this machine', () => {
  const hosts = [...readme().matchAll(/https?:\/\/([^/\s`"')]+)/g)].map((found) => found[1]!)
  expect(
    hosts.filter((host) => !/^(…,?|localhost|127\.0\.0\.1|10\.0\.0\.\d+|hook\.example)(:\d+)?$/.test(host)),
  ).toEqual([])
})

test('the printed curl and client snippet work as printed, but for the port', async () => {
  await using house = await startHouse({ env: { WEIR_DEMO_KEY: 'weir-demo-key-0001' } })
  const here = (code: string) => code.replaceAll('http://localhost:8080', house.url)
  const curl = /```sh\n(curl [^`]+)```/.exec(readme())![1]!
  const said = await Bun.$`sh -c ${here(curl)}`.quiet().text()
  expect(said).toEndWith('data: [DONE]\n\n')
  const snippet = /```ts\n([^`]+)```/.exec(readme())![1]!
  const file = `${import.meta.dir}/readme-snippet-${process.pid}.ts`
  await Bun.write(file, here(snippet))
  try {
    const run = Bun.spawn({ cmd: [process.execPath, file], stdout: 'pipe', stderr: 'pipe' })
    const text = await new Response(run.stdout).text()
    expect([await run.exited, text.length > 20]).toEqual([0, true])
  } finally {
    await Bun.file(file).delete()
  }
})
