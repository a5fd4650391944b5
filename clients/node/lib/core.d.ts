/** One value, or several lines of the same name. */
export type Headers = Record<string, string | string[]>;

/** What names a request: `key`, `path` and `body` as they came. Without a `method` there is no fingerprint, or the one given. */
export interface Request {
  scope: string | null | undefined;
  operation: string;
  key: string | null | undefined;
  method?: string;
  path?: string;
  body?: Uint8Array | null;
  fingerprint?: Uint8Array | null;
  /** How long to wait for whoever holds the key, in milliseconds. */
  waitMs?: number;
}

/** An answer of the work's. `resource` is type and id of what was created, for operations that keep a pointer. */
export interface Result {
  status: number;
  headers?: Headers;
  body?: Uint8Array | string | null;
  resource?: [type: string, id: string];
  withhold?: string;
}

/** What to send. `outcome` is the extension's word. */
export interface Answer {
  outcome: string;
  status: number;
  headers: Headers;
  body: Buffer | null;
  resource?: [type: string, id: string];
}

/** Thrown by the work: this answer is final, and the effects of the work are undone. */
export class Refused extends Error {
  constructor(answer: Result);
  answer: Result;
}

/** One transaction on one connection. */
export interface Unit<Db> {
  db: Db;
  claim(request: Request): Promise<Answer | null>;
  undo(): Promise<void>;
  complete(answer: Result): Promise<Answer>;
}
export type Units<Db> = (body: (unit: Unit<Db>) => Promise<Answer>) => Promise<Answer>;

/** Has `work` executed at most once, again after 40001 and 40P01, and resolves to what to send. It was committed before. */
export function run<Db>(units: Units<Db>, request: Request, work: (db: Db) => Promise<Result>): Promise<Answer>;
export function sqlstate(error: unknown): string | undefined;
