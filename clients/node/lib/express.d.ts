import type { Request as ExpressRequest, RequestHandler, Response } from 'express';
import type { Answer, Result, Units } from './core.js';

export interface Settings<Db> {
  units: Units<Db>;
  /** Whom the key belongs to, or null for nobody; never a token. */
  scope(request: ExpressRequest): string | null | undefined | Promise<string | null | undefined>;
  /** By default the method and the route: `POST /orders`. */
  operation?: string;
  waitMs?: number;
  /** The largest body, as express.raw takes it; by default 1mb. */
  limit?: string | number;
}

/** Handlers of a route whose `work` is executed at most once. An answer of 4xx or 5xx has no effects. */
export function keyed<Db>(
  settings: Settings<Db>, work: (request: ExpressRequest & { body: Buffer }, db: Db) => Promise<Result>): RequestHandler[];
export function send(response: Response, answer: Pick<Answer, 'status' | 'headers' | 'body'>): void;
