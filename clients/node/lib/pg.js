// node-postgres. With a pool of `pipeline: true` a first request takes two round trips besides its work, else five;
// a replay two, else four.
'use strict';

const core = require('./core.js');

/** Has `work(client)` executed at most once and resolves to what to send, after COMMIT. */
function keyed(pool, request, work) {
  return core.run(units(pool), request, work);
}

/** A transaction each, on a client of the pool. */
function units(pool) {
  return async (body) => {
    const db = await pool.connect();
    const ignore = () => {}; // a connection that the server ends is an error of its query, and must not end the process
    db.on('error', ignore);
    const unit = new PgUnit(db);
    try {
      const answer = await body(unit);
      if (!unit.isOver) await db.query('ROLLBACK');
      db.removeListener('error', ignore);
      db.release();
      return answer;
    } catch (error) {
      db.removeListener('error', ignore);
      db.once('error', ignore);
      db.release(true); // closes the connection, and with it the transaction, whatever its state
      throw error;
    }
  };
}

class PgUnit {
  isOver = false;

  constructor(db) {
    this.db = db;
  }

  async claim(request) {
    const [, claim] = await together(this.db, ['BEGIN'], core.claim(request), ['SAVEPOINT idempotency_work']);
    return core.answerOf(claim.rows[0]);
  }

  async undo() {
    await this.db.query('ROLLBACK TO SAVEPOINT idempotency_work');
  }

  async complete(answer) {
    const mayBeReleased = answer.status >= 400;
    const queries = mayBeReleased ? [core.complete(answer)] : [core.complete(answer), ['COMMIT']];
    const [row, commit] = await together(this.db, ...queries).catch(released);
    const completed = core.answerOf(row.rows[0]);
    if (completed.outcome === 'released') {
      this.isOver = commit !== undefined;
      return completed;
    }
    const { command } = commit ?? (await this.db.query('COMMIT'));
    if (command !== 'COMMIT') throw new Error('the transaction was rolled back: it had failed before COMMIT');
    this.isOver = true;
    return completed;
  }
}

/** Not kept, and COMMIT was refused behind it: all is rolled back. */
function released(error) {
  const row = error.results?.[0];
  if (core.sqlstate(error) !== 'IK003' || row?.rows[0].outcome !== 'released') throw error;
  return [row, { command: 'ROLLBACK' }];
}

/** One behind the other; where the client pipelines, in one round trip. The first error, with the results before it. */
async function together(db, ...queries) {
  const results = [];
  const sent = db.pipeline ? queries.map(([text, values]) => db.query(text, values)) : [];
  sent.forEach((one) => one.catch(() => {}));
  try {
    for (const [n, [text, values]] of queries.entries()) results.push(await (sent[n] ?? db.query(text, values)));
  } catch (error) {
    await Promise.allSettled(sent);
    throw Object.assign(error, { results });
  }
  return results;
}

module.exports = { keyed, units };
