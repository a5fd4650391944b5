// Orders, executed at most once per idempotency key: Express and node-postgres.
'use strict';

const express = require('express');
const { Pool } = require('pg');

const app = express().disable('x-powered-by');
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 8 });
// A connection that the server ends is an error of the query on it; here it must only not end the process.
pool.on('error', () => {}).on('connect', (db) => db.on('error', () => {}));

/** A final answer whose effects are undone. */
class Refused extends Error {
  constructor(answer) {
    super('refused');
    this.answer = answer;
  }
}

/** Has `work(db)`, which returns status, body and headers, executed at most once. Returns what to send. */
async function keyed(scope, operation, request, work) {
  for (let attempt = 1; ; attempt++) {
    const db = await pool.connect();
    try {
      await db.query('BEGIN');
      let answer = await row(db,
        'SELECT * FROM idempotency_claim($1, $2, $3, idempotency_fingerprint($4, $5, body_bytes => $6))',
        [scope, operation, request.get('Idempotency-Key'), request.method, request.path, request.body]);
      if (answer.outcome === 'claimed' || answer.outcome === 'bypassed') {
        const { status, body, headers } = await inSavepoint(db, work);
        answer = await row(db, 'SELECT * FROM idempotency_complete($1, body_bytes => $2, headers => $3)',
          [status, Buffer.from(body), { 'Content-Type': 'application/json', ...headers }]);
      }
      // Not kept: its effects go, and a retry is executed.
      await db.query(answer.outcome === 'released' ? 'ROLLBACK' : 'COMMIT');
      db.release();
      return answer;
    } catch (error) {
      db.release(true); // closes the connection, and with it the transaction, whatever its state
      if (attempt === 3 || !['40001', '40P01'].includes(error.code)) throw error;
    }
  }
}

async function inSavepoint(db, work) {
  await db.query('SAVEPOINT work');
  try {
    return await work(db);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    await db.query('ROLLBACK TO SAVEPOINT work');
    return error.answer;
  }
}

async function row(db, text, values) {
  return (await db.query(text, values)).rows[0];
}

app.use((request, response, next) => {
  // Whoever the key belongs to. A real service checks the token.
  request.user = /^Bearer (.+)$/.exec(request.get('Authorization') ?? '')?.[1];
  if (request.user) next();
  else sendJson(response, 401, '{"error": "a bearer is wanted"}');
});

app.post('/orders', express.raw({ type: () => true, limit: '1mb' }), async (request, response) => {
  const bytes = request.body ?? Buffer.alloc(0);
  const senseless = new Refused({ status: 400, body: '{"error": "a JSON object with an item is wanted"}' });
  send(response, await keyed(request.user, 'POST /orders', request, async (db) => {
    const item = itemOf(bytes);
    if (item === undefined) throw senseless;
    try {
      const { id } = await row(db,
        "INSERT INTO orders (owner, item, request) VALUES ($1, $2, convert_from($3, 'UTF8')::json) RETURNING id",
        [request.user, item, bytes]);
      await db.query('UPDATE stock SET pieces = pieces - 1 WHERE item = $1', [item]);
      const body = Buffer.concat([Buffer.from(`{"order": ${id}, "request": `), bytes, Buffer.from('}')]);
      return { status: 201, body, headers: { Location: `/orders/${id}` } };
    } catch (error) {
      if (error.code?.startsWith('22')) throw senseless; // data exception: not UTF-8, for example
      if (!error.code?.startsWith('23')) throw error; // integrity constraint violation
      throw new Refused({ status: 409, body: '{"error": "not in stock"}' });
    }
  }));
});

app.get('/orders/:id', async (request, response) => {
  const order = await row(pool, 'SELECT id, request::text FROM orders WHERE id = $1 AND owner = $2',
    [request.params.id, request.user]);
  if (order) sendJson(response, 200, `{"order": ${order.id}, "request": ${order.request}}`);
  else sendJson(response, 404, '{"error": "no such order"}');
});

function sendJson(response, status, body) {
  send(response, { status, headers: { 'Content-Type': 'application/json' }, body });
}

/** The bytes as they are: express would add a charset to the type, and an ETag. */
function send(response, { status, headers, body }) {
  response.status(status);
  for (const [name, value] of Object.entries(headers ?? {})) response.setHeader(name, value);
  response.end(body);
}

/** What is no UTF-8 is refused here: toString would make one character of it. */
function itemOf(bytes) {
  try {
    const { item } = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
    return typeof item === 'string' ? item : undefined;
  } catch {
    return undefined;
  }
}

const server = app.listen(process.env.PORT ?? 0, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
