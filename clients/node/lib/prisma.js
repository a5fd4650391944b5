// Prisma. A first request takes five round trips besides its work, a replay three or four.
'use strict';

const core = require('./core.js');

// Prisma ends a transaction after 5 s: whoever waits for a key has to be told before that.
const WAIT_MS = 1500;

/** Has `work(tx)` executed at most once and resolves to what to send, after COMMIT. */
function keyed(prisma, request, work, options) {
  return core.run(units(prisma, options), request, work);
}

/** A transaction each; `options` are those of $transaction. */
function units(prisma, options) {
  return async (body) => {
    let answer;
    try {
      return await prisma.$transaction(async (tx) => {
        answer = await body(new PrismaUnit(tx));
        if (answer.outcome === 'released') throw new RolledBack();
        return answer;
      }, options);
    } catch (error) {
      if (error instanceof RolledBack) return answer;
      // P2028: no connection or no time was left. Nothing is committed, but what was recorded before may be sent.
      if (error.code !== 'P2028') throw error;
      if (answer && answer.outcome !== 'completed' && answer.outcome !== 'bypassed') return answer;
      return { outcome: 'released', status: 503, headers: { 'Retry-After': '1' }, body: null };
    }
  };
}

class RolledBack extends Error {}

class PrismaUnit {
  constructor(db) {
    this.db = db;
  }

  async claim(request) {
    const answer = await this.call(core.claim({ ...request, waitMs: request.waitMs ?? WAIT_MS }));
    if (answer === null) await this.db.$executeRawUnsafe('SAVEPOINT idempotency_work');
    return answer;
  }

  async undo() {
    await this.db.$executeRawUnsafe('ROLLBACK TO SAVEPOINT idempotency_work');
  }

  async complete(answer) {
    return this.call(core.complete(answer));
  }

  async call([text, values]) {
    const [row] = await this.db.$queryRawUnsafe(text, ...values);
    return core.answerOf(row);
  }
}

module.exports = { keyed, units };
