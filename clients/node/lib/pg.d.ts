import type { Pool, PoolClient } from 'pg';
import type { Answer, Request, Result, Units } from './core.js';

/** Has `work(client)` executed at most once and resolves to what to send, after COMMIT. */
export function keyed(pool: Pool, request: Request, work: (db: PoolClient) => Promise<Result>): Promise<Answer>;

/** For the adapters: a transaction each, on a client of the pool. */
export function units(pool: Pool): Units<PoolClient>;
