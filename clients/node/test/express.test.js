// The Express adapter on node-postgres over HTTP, in a database of its own on the server at DATABASE_URL.
'use strict';

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const http = require('node:http');
const express = require('express');
const { Client, Pool } = require('pg');
const { Refused } = require('pg-idempotency');
const { keyed: handlers } = require('pg-idempotency/express');
const { keyed, units } = require('pg-idempotency/pg');
const { Proxy } = require('./proxy.js');

const name = `clients_${process.pid}_${Date.now()}`;
const server = new Client({ connectionString: process.env.DATABASE_URL });
const own = Object.assign(new URL(process.env.DATABASE_URL), { pathname: `/${name}` });
const proxy = new Proxy();
let admin, pools, listener, port;

before(async () => {
  await server.connect();
  await server.query(`CREATE DATABASE ${name} TEMPLATE template0`);
  const at = (base, options) => new Pool({ connectionString: base.href, max: 4, ...options }).on('error', () => {});
  admin = at(own);
  await admin.query(`CREATE EXTENSION pg_idempotency;
    CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text NOT NULL);
    CREATE TABLE stock (item text PRIMARY KEY, pieces integer NOT NULL CHECK (pieces >= 0))`);
  const proxied = await proxy.start(own);
  pools = { pipelined: at(proxied, { pipeline: true, max: 1 }), plain: at(proxied, { max: 1 }) };
  await startService();
});

after(async () => {
  listener?.close();
  await Promise.all([admin, ...Object.values(pools)].map((pool) => pool.end()));
  proxy.stop();
  await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await server.end();
});

function startService() {
  const app = express();
  const settings = { units: units(pools.plain), scope: (request) => request.get('User') };
  const insert = async (request, db) => (await db.query('INSERT INTO orders (owner) VALUES ($1) RETURNING id', [request.get('User')])).rows[0].id;
  app.post('/orders/:place', ...handlers(settings, async (request, db) => {
    const id = await insert(request, db);
    return { status: 201, body: `order ${id} ${request.params.place} ${request.body.length}`, headers: { Link: ['<a>', '<b>'] } };
  }));
  app.post('/refused', ...handlers(settings, async (request, db) => ({ status: 409, body: String(await insert(request, db)) })));
  app.post('/later', ...handlers(settings, async (request, db) => ({ status: 503, body: String(await insert(request, db)) })));
  app.post('/parsed', express.json(), ...handlers(settings, async (request, db) => ({ status: 201, body: String(await insert(request, db)) })));
  app.use((error, request, response, next) => response.status(500).end(error.message));
  return new Promise((resolve) => {
    listener = app.listen(0, '127.0.0.1', () => resolve(port = listener.address().port));
  });
}

function post(path, user, headers = { 'Idempotency-Key': 'k' }, body = '{"a": 1}') {
  return new Promise((resolve, reject) => {
    const options = { port, path, method: 'POST', headers: { User: user, 'Content-Type': 'application/json', ...headers } };
    http.request(options, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks).toString() }));
    }).on('error', reject).end(body);
  });
}

async function effects(user) {
  const count = async (sql) => Number((await admin.query(sql, [user])).rows[0].count);
  return [await count('SELECT count(*) FROM orders WHERE owner = $1'),
    await count('SELECT count(*) FROM idempotency.records WHERE scope = $1')];
}

test('a retry gets the first answer', async () => {
  const first = await post('/orders/sea%20side?from=mail', 'retry');
  assert.equal(first.status, 201);
  const again = await post('/orders/sea%20side', 'retry');
  assert.deepEqual([again.status, again.body, again.headers.link], [201, first.body, '<a>, <b>']);
  assert.deepEqual([first.headers['idempotent-replayed'], again.headers['idempotent-replayed']], [undefined, 'true']);
  assert.deepEqual(await effects('retry'), [1, 1]);
  const { rows: [{ operation }] } = await admin.query("SELECT operation FROM idempotency.records WHERE scope = 'retry'");
  assert.equal(operation, 'POST /orders/:place');
  assert.equal((await post('/orders/sea', 'retry')).status, 422, 'the path is part of the request');
});

test('without a key every request is executed', async () => {
  for (const n of [1, 2]) assert.equal((await post('/orders/sea', 'keyless', {})).status, 201, String(n));
  assert.deepEqual(await effects('keyless'), [2, 0]);
});

test('an empty key is none', async () => {
  assert.equal((await post('/orders/sea', 'empty', { 'Idempotency-Key': '' })).status, 400);
  assert.deepEqual(await effects('empty'), [0, 0]);
});

test('what is refused has no effect and is kept', async () => {
  const first = await post('/refused', 'refused');
  const again = await post('/refused', 'refused');
  assert.deepEqual([first.status, again.status, again.body], [409, 409, first.body]);
  assert.deepEqual(await effects('refused'), [0, 1]);
});

test('what asks for a retry leaves nothing', async () => {
  for (const n of [1, 2]) assert.equal((await post('/later', 'later')).status, 503, String(n));
  assert.deepEqual(await effects('later'), [0, 0]);
});

test('a body that was parsed before is an error', async () => {
  const answer = await post('/parsed', 'parsed');
  assert.deepEqual([answer.status, /parsed already/.test(answer.body)], [500, true]);
  assert.deepEqual(await effects('parsed'), [0, 0]);
});

for (const kind of ['pipelined', 'plain']) {
  const request = (user, more) => ({ scope: user, operation: `POST /${user}`, key: 'k', method: 'POST', path: '/', body: Buffer.from('{}'), ...more });
  const order = (user, status = 201) => async (db) => {
    const { rows: [{ id }] } = await db.query('INSERT INTO orders (owner) VALUES ($1) RETURNING id', [user]);
    return { status, body: Buffer.from([Number(id) % 256, 255, 0]) };
  };

  test(`${kind}: round trips`, async () => {
    const user = `trips ${kind}`;
    await keyed(pools[kind], request(user, { key: 'warm' }), order(user));
    const create = await proxy.count(() => keyed(pools[kind], request(user), order(user))) - 1;
    const replay = await proxy.count(() => keyed(pools[kind], request(user), () => assert.fail('executed again')));
    assert.deepEqual([create, replay], kind === 'pipelined' ? [2, 2] : [5, 4]);
  });

  test(`${kind}: a success that is not kept leaves nothing`, async () => {
    const user = `success ${kind}`;
    await admin.query('SELECT idempotency_configure($1, $2)', [`POST /${user}`, '{"kept_statuses": "{[200,299)}"}']);
    const answer = await keyed(pools[kind], request(user), order(user, 299));
    assert.deepEqual([answer.outcome, answer.status, answer.body[1]], ['released', 299, 255]);
    assert.deepEqual(await effects(user), [0, 0]);
    assert.equal((await keyed(pools[kind], request(user), order(user))).outcome, 'completed');
  });

  test(`${kind}: an error is passed on, and a retry is executed`, async () => {
    const user = `error ${kind}`;
    const fails = async (db) => {
      await order(user)(db);
      throw new RangeError('unforeseen');
    };
    await assert.rejects(keyed(pools[kind], request(user), fails), RangeError);
    assert.deepEqual(await effects(user), [0, 0]);
    assert.equal((await keyed(pools[kind], request(user), order(user))).outcome, 'completed');
  });

  test(`${kind}: work that hides an error of its transaction commits nothing`, async () => {
    const user = `hidden ${kind}`;
    const hides = async (db) => {
      const answer = await order(user)(db);
      await db.query('SELECT 1 / 0').catch(() => {});
      return answer;
    };
    await assert.rejects(keyed(pools[kind], request(user), hides), { code: '25P02' });
    assert.deepEqual(await effects(user), [0, 0]);
  });

  test(`${kind}: Refused undoes what has failed, and is kept`, async () => {
    const user = `sold out ${kind}`;
    const refuses = async (db) => {
      await order(user)(db);
      await db.query("INSERT INTO stock VALUES ('x', -1)").catch(() => {
        throw new Refused({ status: 409, body: 'sold out' });
      });
    };
    for (const outcome of ['completed', 'replayed']) {
      const answer = await keyed(pools[kind], request(user), refuses);
      assert.deepEqual([answer.outcome, answer.status, String(answer.body)], [outcome, 409, 'sold out']);
    }
    assert.deepEqual(await effects(user), [0, 1]);
  });

  test(`${kind}: a serialization failure is tried again`, async () => {
    const user = `again ${kind}`;
    await admin.query('INSERT INTO stock VALUES ($1, 10)', [user]);
    let calls = 0;
    const work = async (db) => {
      await db.query('SELECT 1');
      if (++calls === 1) {
        await db.query("DO $$ BEGIN RAISE 'conflict' USING ERRCODE = 'serialization_failure'; END $$");
      }
      return order(user)(db);
    };
    assert.equal((await keyed(pools[kind], request(user), work)).outcome, 'completed');
    assert.equal(calls, 2);
    assert.deepEqual(await effects(user), [1, 1]);
  });

  test(`${kind}: a backend that is terminated has no effect`, async () => {
    const user = `terminated ${kind}`;
    const dies = async (db) => {
      await order(user)(db);
      const { rows: [{ pid }] } = await db.query('SELECT pg_backend_pid() AS pid');
      await admin.query('SELECT pg_terminate_backend($1, 10000)', [pid]);
      return order(user)(db);
    };
    await assert.rejects(keyed(pools[kind], request(user), dies));
    assert.deepEqual(await effects(user), [0, 0]);
    assert.equal((await keyed(pools[kind], request(user), order(user))).outcome, 'completed');
  });
}
