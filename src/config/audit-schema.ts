import { Type } from '@sinclair/typebox'
import { closed, section } from './kinds.ts'

/** The Merkle log of the ledger. Read at the start. */
export const Audit = Type.Object(
  {
    origin: Type.Optional(
      Type.String({
        pattern: '^[^\\s+]{1,200}$',
        title: 'a name',
        'x-allowed': 'like an address without scheme, such as weir.example.com/log; no spaces and no +',
        description:
          'Name of the log in its checkpoints, for ever; weir.local/ and a random id if absent. It cannot change once the log exists.',
      }),
    ),
    public: Type.Boolean({
      default: false,
      description:
        'Checkpoint, public key, proofs and tiles of hashes are shown without the admin token, as log monitors and auditors expect. Entries are rows of the ledger and never are.',
    }),
    witness: Type.Optional(
      Type.Object(
        {
          url: Type.String({
            pattern: '^https?://',
            maxLength: 2_048,
            title: 'an address',
            'x-allowed': 'http://… or https://…',
            description: 'The address that takes checkpoints (C2SP tlog-witness), usually ending in /add-checkpoint.',
          }),
          key: Type.String({
            pattern: '^[^\\s+]+\\+[0-9a-f]{8}\\+[A-Za-z0-9+/]{44}$',
            title: 'a verifier key',
            'x-allowed': 'NAME+ID+BASE64 of a witness key',
            description: 'The public key of its cosignatures.',
          }),
        },
        { ...closed, description: 'Who cosigns checkpoints; nobody if absent.' },
      ),
    ),
  },
  section,
)
