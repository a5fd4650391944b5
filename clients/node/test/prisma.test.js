// Prisma: the client of examples/prisma, in a database of its own on the server at DATABASE_URL.
'use strict';

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { PrismaPg } = require('@prisma/adapter-pg');
const { Refused } = require('pg-idempotency');
const { keyed } = require('pg-idempotency/prisma');
const { PrismaClient } = require('../../../examples/prisma/client.js');
const { Proxy } = require('./proxy.js');

const name = `clients_prisma_${process.pid}_${Date.now()}`;
const own = Object.assign(new URL(process.env.DATABASE_URL), { pathname: `/${name}` });
const connect = (url, max) => new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max }) });
const server = connect(process.env.DATABASE_URL, 1);
const proxy = new Proxy();
let prisma, single;

before(async () => {
  await server.$executeRawUnsafe(`CREATE DATABASE ${name} TEMPLATE template0`);
  prisma = connect(own.href, 4);
  single = connect((await proxy.start(own)).href, 1);
  await prisma.$executeRawUnsafe('CREATE EXTENSION pg_idempotency');
  await prisma.$executeRawUnsafe('CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text, n int CHECK (n > 0))');
});

after(async () => {
  await Promise.all([prisma, single].map((client) => client?.$disconnect()));
  proxy.stop();
  await server.$executeRawUnsafe(`DROP DATABASE ${name} WITH (FORCE)`);
  await server.$disconnect();
});

const request = (user, more) => ({ scope: user, operation: 'POST /orders', key: 'k', method: 'POST', path: '/orders', body: Buffer.from('{}'), ...more });
const insert = (tx, user, n = 1) => tx.$queryRaw`INSERT INTO orders (owner, n) VALUES (${user}, ${n}) RETURNING id`;
const order = (user, status = 201) => async (tx) => {
  const [{ id }] = await insert(tx, user);
  return { status, body: `${id}`, headers: { Link: ['<a>', '<b>'] } };
};

async function effects(user) {
  const [{ orders, records }] = await prisma.$queryRaw`SELECT (SELECT count(*) FROM orders WHERE owner = ${user})::int AS orders,
    (SELECT count(*) FROM idempotency.records WHERE scope = ${user})::int AS records`;
  return [orders, records];
}

test('a retry gets the first answer', async () => {
  const first = await keyed(prisma, request('retry'), order('retry'));
  const again = await keyed(prisma, request('retry'), () => assert.fail('executed again'));
  assert.deepEqual([first.outcome, again.outcome, again.status, again.body], ['completed', 'replayed', 201, first.body]);
  assert.deepEqual(again.headers, { Link: ['<a>', '<b>'], 'Idempotent-Replayed': 'true' });
  assert.deepEqual(await effects('retry'), [1, 1]);
});

test('a header that is not there is no key', async () => {
  for (const key of [undefined, null]) {
    assert.equal((await keyed(prisma, request('keyless', { key }), order('keyless'))).outcome, 'bypassed');
  }
  assert.deepEqual(await effects('keyless'), [2, 0]);
});

test('Refused undoes what has failed, and is kept', async () => {
  const refuses = async (tx) => {
    await insert(tx, 'refused');
    await insert(tx, 'refused', -1).catch(() => {
      throw new Refused({ status: 409, body: 'sold out' });
    });
  };
  for (const outcome of ['completed', 'replayed']) {
    const answer = await keyed(prisma, request('refused'), refuses);
    assert.deepEqual([answer.outcome, answer.status, String(answer.body)], [outcome, 409, 'sold out']);
  }
  assert.deepEqual(await effects('refused'), [0, 1]);
});

test('what asks for a retry leaves nothing', async () => {
  for (const n of [1, 2]) assert.equal((await keyed(prisma, request('later'), order('later', 503))).outcome, 'released', String(n));
  assert.deepEqual(await effects('later'), [0, 0]);
});

test('an error is passed on, and one that the work hides commits nothing', async () => {
  const fails = async (tx) => {
    await insert(tx, 'error');
    throw new RangeError('unforeseen');
  };
  const hides = async (tx) => {
    const answer = await order('error')(tx);
    await insert(tx, 'error', -1).catch(() => {});
    return answer;
  };
  await assert.rejects(keyed(prisma, request('error'), fails), RangeError);
  await assert.rejects(keyed(prisma, request('error'), hides));
  assert.deepEqual(await effects('error'), [0, 0]);
});

test('a serialization failure is tried again', async () => {
  let calls = 0;
  const work = async (tx) => {
    await insert(tx, 'again');
    if (++calls === 1) await tx.$executeRawUnsafe("DO $$ BEGIN RAISE 'conflict' USING ERRCODE = 'serialization_failure'; END $$");
    return order('again')(tx);
  };
  assert.equal((await keyed(prisma, request('again'), work)).outcome, 'completed');
  assert.equal(calls, 2);
  assert.deepEqual(await effects('again'), [2, 1]);
});

test('a transaction that is out of time is answered 503, and a retry is executed', async () => {
  const slow = async (tx) => {
    await insert(tx, 'slow');
    await tx.$executeRawUnsafe('SELECT pg_sleep(0.5)');
    return order('slow')(tx);
  };
  const answer = await keyed(prisma, request('slow'), slow, { timeout: 200 });
  assert.deepEqual([answer.outcome, answer.status, answer.headers], ['released', 503, { 'Retry-After': '1' }]);
  assert.deepEqual(await effects('slow'), [0, 0]);
  assert.equal((await keyed(prisma, request('slow'), order('slow'))).outcome, 'completed');
});

test('whoever gets no connection is answered 503', async () => {
  const inside = async (tx) => {
    const answer = await keyed(single, request('second'), order('second'), { maxWait: 100 });
    assert.deepEqual([answer.outcome, answer.status], ['released', 503]);
    return order('first')(tx);
  };
  assert.equal((await keyed(single, request('first'), inside)).outcome, 'completed');
  assert.deepEqual([await effects('first'), await effects('second')], [[1, 1], [0, 0]]);
});

test('round trips', async () => {
  await keyed(single, request('trips', { key: 'warm' }), order('trips'));
  const create = await proxy.count(() => keyed(single, request('trips'), order('trips'))) - 1;
  const replay = await proxy.count(() => keyed(single, request('trips'), () => assert.fail('executed again')));
  assert.deepEqual([create, replay], [5, 3]);
});
