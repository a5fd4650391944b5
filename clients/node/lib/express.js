// Express 4 and 5, on the units of any driver here.
'use strict';

const { raw } = require('express');
const core = require('./core.js');

/**
 * A route's handlers: `app.post('/orders', ...keyed({ units: units(pool), scope }, async (request, db) => answer))`.
 * `request.body` is a Buffer. An answer of 4xx or 5xx has no effects.
 */
function keyed({ units, scope, operation, waitMs, limit = '1mb' }, work) {
  return [raw({ type: () => true, limit }), async (request, response, next) => {
    try {
      request.body = bodyOf(request);
      send(response, await core.run(units, {
        scope: await scope(request),
        operation: operation ?? `${request.method} ${request.baseUrl}${request.route.path}`,
        key: request.get('Idempotency-Key'), // Node joins several lines with commas, and that is refused as a key
        method: request.method,
        path: request.originalUrl,
        body: request.body,
        waitMs,
      }, async (db) => refusing(await work(request, db))));
    } catch (error) {
      next(error);
    }
  }];
}

/** Without a body, express.raw leaves what it found: nothing, or {} in Express 4. */
function bodyOf(request) {
  if (Buffer.isBuffer(request.body)) return request.body;
  const isSent = request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
  if (isSent) throw new Error('the body is parsed already: have express.json() leave keyed routes out');
  return Buffer.alloc(0);
}

function refusing(answer) {
  if (answer.status >= 400) throw new core.Refused(answer);
  return answer;
}

/** The bytes as they are: response.send would add a charset to the type, and an ETag. */
function send(response, { status, headers, body }) {
  response.status(status);
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.end(body ?? undefined);
}

module.exports = { keyed, send };
