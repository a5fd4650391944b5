// Orders, executed at most once per idempotency key: Express and node-postgres.
'use strict';

const express = require('express');
const { Pool } = require('pg');
const { keyed, send } = require('pg-idempotency/express');
const { units } = require('pg-idempotency/pg');

const app = express().disable('x-powered-by');
// pipeline: what keyed sends before and behind the work takes one round trip each
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 8, pipeline: true });
pool.on('error', () => {}); // an idle connection that the server ends must not end the process
const once = { units: units(pool), scope: (request) => request.user };

app.use((request, response, next) => {
  // Whom the key belongs to: a user's id. A real service checks the token and finds its user; a token is no scope.
  request.user = /^Bearer (.+)$/.exec(request.get('Authorization') ?? '')?.[1];
  if (request.user) next();
  else send(response, json(401, '{"error": "a bearer is wanted"}'));
});

app.post('/orders', ...keyed(once, async (request, db) => {
  const bytes = request.body;
  const senseless = json(400, '{"error": "a JSON object with an item is wanted"}');
  const item = itemOf(bytes);
  if (item === undefined) return senseless;
  try {
    const { rows: [{ id }] } = await db.query(
      "INSERT INTO orders (owner, item, request) VALUES ($1, $2, convert_from($3, 'UTF8')::json) RETURNING id",
      [request.user, item, bytes]);
    await db.query('UPDATE stock SET pieces = pieces - 1 WHERE item = $1', [item]);
    const body = Buffer.concat([Buffer.from(`{"order": ${id}, "request": `), bytes, Buffer.from('}')]);
    return json(201, body, { Location: `/orders/${id}` });
  } catch (error) {
    if (error.code?.startsWith('22')) return senseless; // data exception: not UTF-8, for example
    if (error.code?.startsWith('23')) return json(409, '{"error": "not in stock"}'); // integrity constraint violation
    throw error;
  }
}));

app.get('/orders/:id', async (request, response) => {
  const { rows: [order] } = await pool.query('SELECT id, request::text FROM orders WHERE id = $1 AND owner = $2',
    [request.params.id, request.user]);
  send(response, order ? json(200, `{"order": ${order.id}, "request": ${order.request}}`) : json(404, '{"error": "no such order"}'));
});

function json(status, body, headers) {
  return { status, body, headers: { 'Content-Type': 'application/json', ...headers } };
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
