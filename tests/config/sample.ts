/** A valid configuration that writes every setting there is, none at its default where that can be. Fresh on each call. */
export const sample = () => ({
  server: {
    port: 18080,
    host: '127.0.0.1',
    ops_port: 19090,
    ops_host: '127.0.0.2',
    data: './elsewhere',
    workers: 3,
    grace_ms: 1000,
    body_bytes_max: 2048,
    body_ms: 200,
    in_flight_max: 10,
    upstream_sockets_max: 20,
    ping_ms: 300,
    subjects_max: 128,
  },
  ledger: { durability: 'strict', sync_ms: 5, journal_keep_ms: 6 },
  audit: {
    origin: 'weir.example/log',
    witness: { url: 'https://witness.example/add-checkpoint', key: `w+01234567+${'A'.repeat(44)}` },
  },
  cors: { origins: ['https://app.example'] },
  timeouts: { connect_ms: 1, first_byte_ms: 2, first_token_ms: 3, between_tokens_ms: 4, total_ms: 50 },
  engines: [
    {
      name: 'a',
      url: 'http://10.0.0.5:8000/v1?api-version=2025-01-01',
      dialect: 'anthropic',
      key: 'sk-sample',
      capacity: 7,
      can: ['prefix_continuation'],
      on_disconnect: 'drain',
      idle_ms: 9,
    },
    { name: 'b', url: 'https://engine.example' },
  ],
  models: [
    {
      name: 'large',
      targets: [{ engine: 'a', model: 'org/large', weight: 0.5 }, { engine: 'b' }],
      fallbacks: ['small'],
      price: { input: '0.20', cached_input: '0.02', output: '0.60', reasoning: '0.7', request: '0.001' },
      rewrite_model: true,
      timeouts: { connect_ms: 1, first_byte_ms: 2, first_token_ms: 3, between_tokens_ms: 4, total_ms: 5 },
    },
    { name: 'small', targets: [{ engine: 'b' }], free: true },
  ],
  tenants: [
    {
      name: 'acme',
      budgets: [{ usd: '100.00', per: 'month', timezone: 'Asia/Seoul' }],
      limits: { requests_per_minute: 600, tokens_per_minute: 200000, concurrent: 50 },
      models: ['large'],
    },
  ],
})
