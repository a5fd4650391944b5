// Not run: what `tsc --noEmit --strict` has to accept, and to refuse.
import express from 'express';
import { Pool } from 'pg';
import { Refused, type Answer } from 'pg-idempotency';
import { keyed } from 'pg-idempotency/express';
import { keyed as once, units } from 'pg-idempotency/pg';

const pool = new Pool();
const settings = { units: units(pool), scope: (request: express.Request) => request.get('User') };

express().post('/orders', ...keyed(settings, async (request, db) => {
  const { rows } = await db.query('SELECT $1::int AS id', [request.body.length]);
  if (rows.length === 0) throw new Refused({ status: 409, body: 'none' });
  return { status: 201, body: JSON.stringify(rows[0]), headers: { Link: ['<a>', '<b>'] } };
}));

export const answer: Promise<Answer> = once(pool, { scope: 'u', operation: 'o', key: undefined }, async () => ({ status: 204 }));

// @ts-expect-error a body is bytes or text
once(pool, { scope: 'u', operation: 'o', key: 'k' }, async () => ({ status: 200, body: { a: 1 } }));
// @ts-expect-error an operation has to be named
once(pool, { scope: 'u', key: 'k' }, async () => ({ status: 200 }));
