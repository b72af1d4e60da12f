/** The parameters of the address of a proof, in OpenAPI's form. */
export const PROOF_PARAMETERS = [
  {
    in: 'path',
    name: 'id',
    required: true,
    description: 'The `x-weir-call-id` of the answer; its row is signed within about a second.',
    schema: { type: 'string' },
  },
  {
    in: 'query',
    name: 'from',
    required: false,
    description: 'Size of a checkpoint that you kept: the proof then shows that the log only grew since.',
    schema: { type: 'integer', minimum: 0 },
  },
]

/** A proof of a call, shortened. */
export const PROOF_EXAMPLE = {
  format: 'weir-proof/1',
  kind: 'call',
  checkpoint: 'weir.example.com/log\n42\n…',
  public_keys: ['weir.example.com/log+d657a921+AXV1…'],
  lines: [{ index: 41, leaf: 'eyJhdF9tcyI6MX0=', path: [0], salt: '0f1e2d3c4b5a69788796a5b4c3d2e1f0' }],
  nodes: ['NohFywIqYB4PX63ow5Aw8dq0lntO4TYKZKVayG4U2O4='],
}
