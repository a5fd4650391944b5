import type { Answer, Request, Result, Units } from './core.js';

/** A client that `prisma generate` has made. */
export interface Client<Tx> {
  $transaction<R>(body: (tx: Tx) => Promise<R>, options?: Options): Promise<R>;
}
export interface Options {
  maxWait?: number;
  timeout?: number;
  isolationLevel?: 'ReadCommitted' | 'RepeatableRead' | 'Serializable';
}

/**
 * Has `work(tx)` executed at most once and resolves to what to send, after COMMIT. Where the request says nothing, it waits
 * 1.5 s for whoever holds the key, which is less than the 5 s after which Prisma ends a transaction.
 */
export function keyed<Tx>(
  prisma: Client<Tx>, request: Request, work: (tx: Tx) => Promise<Result>, options?: Options): Promise<Answer>;

/** For the adapters. */
export function units<Tx>(prisma: Client<Tx>, options?: Options): Units<Tx>;
