// Orders, executed at most once per idempotency key: Express and Prisma.
'use strict';

const express = require('express');
const { PrismaPg } = require('@prisma/adapter-pg');
const { sqlstate } = require('pg-idempotency');
const { keyed, send } = require('pg-idempotency/express');
const { units } = require('pg-idempotency/prisma');
const { PrismaClient } = require('./client.js');

const app = express().disable('x-powered-by');
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL, max: 8 }) });
const once = {
  // By default Prisma waits 2 s for a connection, and ends a transaction after 5 s.
  units: units(prisma, { maxWait: 30_000, timeout: 30_000 }),
  waitMs: 10_000,
  scope: (request) => request.user,
};

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
    const [{ id }] = await db.$queryRaw`INSERT INTO orders (owner, item, request)
      VALUES (${request.user}, ${item}, convert_from(${bytes}, 'UTF8')::json) RETURNING id`;
    await db.$executeRaw`UPDATE stock SET pieces = pieces - 1 WHERE item = ${item}`;
    const body = Buffer.concat([Buffer.from(`{"order": ${id}, "request": `), bytes, Buffer.from('}')]);
    return json(201, body, { Location: `/orders/${id}` });
  } catch (error) {
    if (sqlstate(error)?.startsWith('22')) return senseless; // data exception: not UTF-8, for example
    if (sqlstate(error)?.startsWith('23')) return json(409, '{"error": "not in stock"}'); // integrity constraint violation
    throw error;
  }
}));

app.get('/orders/:id', async (request, response) => {
  const [order] = await prisma.$queryRaw`SELECT id, request::text FROM orders
    WHERE id = ${request.params.id}::bigint AND owner = ${request.user}`;
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
