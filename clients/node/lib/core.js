// What all drivers and frameworks share: the calls, their rows, and the loop around a transaction.
'use strict';

const COLUMNS = 'outcome, status, headers::text AS headers, body, resource_type, resource_id';
// Serialization failure, deadlock: the whole transaction is made again.
const AGAIN = ['40001', '40P01'];
const ATTEMPTS = 3;

/** Thrown by the work: this answer is final, and the effects of the work are undone. */
class Refused extends Error {
  constructor(answer) {
    super(`refused with ${answer.status}`);
    this.answer = answer;
  }
}

/** Has `work(db)` executed at most once and resolves to what to send. It was committed before. */
async function run(units, request, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await units(async (unit) => (await unit.claim(request)) ?? (await execute(unit, work)));
    } catch (error) {
      if (attempt === ATTEMPTS || !AGAIN.includes(sqlstate(error))) throw error;
    }
  }
}

async function execute(unit, work) {
  let answer;
  try {
    answer = await work(unit.db);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    await unit.undo();
    answer = error.answer;
  }
  return unit.complete(answer);
}

/** SQL and values of the claim. An absent header is NULL and never undefined, which some drivers refuse. */
function claim(request) {
  const { scope, operation, key, method, path, body, fingerprint, waitMs } = request;
  const named = [scope ?? null, operation, key ?? null, waitMs ?? null];
  const [print, values] = method === undefined
    ? ['$5::bytea', [fingerprint ?? null]]
    : ['idempotency_fingerprint($5::text, $6::text, body_bytes => $7::bytea)', [method, path, body ?? null]];
  const call = `idempotency_claim($1::text, $2::text, $3::text, ${print}, wait_ms => $4::integer)`;
  return [`SELECT ${COLUMNS} FROM ${call}`, [...named, ...values]];
}

/** SQL and values of complete. */
function complete(answer) {
  const { status, body, headers, resource, withhold } = answer;
  const given = 'body_bytes => $2::bytea, headers => $3::jsonb, resource_type => $4::text, resource_id => $5::text, withhold => $6::text';
  const values = [status, bytes(body), JSON.stringify(headers ?? {}), resource?.[0] ?? null, resource?.[1] ?? null, withhold ?? null];
  return [`SELECT ${COLUMNS} FROM idempotency_complete($1::integer, ${given})`, values];
}

function bytes(body) {
  if (body === undefined || body === null || body instanceof Uint8Array) return body ?? null;
  if (typeof body === 'string') return Buffer.from(body);
  throw new TypeError('a body is a Buffer or a string: JSON.stringify an object');
}

/** The answer in a row, or null where the work is to be done. */
function answerOf(row) {
  if (row.outcome === 'claimed' || row.outcome === 'bypassed' && row.status === null) return null;
  const resource = row.resource_type === null ? undefined : [row.resource_type, row.resource_id];
  const body = row.body === null ? null : Buffer.from(row.body);
  return { outcome: row.outcome, status: row.status, headers: JSON.parse(row.headers ?? '{}'), body, resource };
}

/** Of a driver's error, or of one that an ORM has wrapped around it. */
function sqlstate(error) {
  for (let depth = 0; error && depth < 8; depth++) {
    const inner = error.meta?.driverAdapterError ?? error.driverError ?? error.cause;
    if (error.code === 'P2034') return '40001'; // Prisma's word for a conflict or a deadlock
    for (const code of [error.originalCode, error.code]) {
      if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !/^P\d{4}$/.test(code)) return code;
    }
    error = inner;
  }
  return undefined;
}

module.exports = { Refused, run, claim, complete, answerOf, sqlstate };
