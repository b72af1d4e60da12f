/** Sends bytes to a server and reads until it closes. */
export const connectRaw = async (url: string, text: string): Promise<string> => {
  const { hostname, port } = new URL(url)
  const { promise, resolve } = Promise.withResolvers<string>()
  let got = ''
  const socket = await Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      data: (_socket, bytes) => void (got += bytes.toString('latin1')),
      close: () => resolve(got),
    },
  })
  socket.write(text)
  return promise
}
