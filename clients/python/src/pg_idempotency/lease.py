"""Work that calls other services: steps with recovery points, on a leased claim (psycopg 3)."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import Connection, Error
from psycopg.rows import tuple_row

from . import core
from .core import Answer, Request
from .psycopg import _rolled_back, parameter

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

T = TypeVar("T")
# The lease was taken over or given back, or its request is finished.
LOST = ("IK005", "IK002")


@dataclass(frozen=True)
class Work:
    """What a step gets. `key` is for the other service: the same in all attempts at this step, and in no other's."""

    scope: str
    key: str
    data: Any
    state: Any


@dataclass(frozen=True)
class Step:
    """`call(work)` runs outside of any transaction, perhaps more than once; `record(db, work, result)` in one, at most once.

    What `record` returns is the state for the next steps, or the Answer that ends the request. Both are kept as JSON.
    """

    name: str
    record: Callable[[Connection[Any], Work, Any], Any]
    call: Callable[[Work], Any] | None = None


class Lost(Exception):
    """Another worker has the request now."""


class Runner:
    """Executes the steps of one operation, for clients and as a completer."""

    def __init__(self, pool: ConnectionPool[Any], operation: str, steps: Sequence[Step], lease_ms: int = 60_000) -> None:
        self.pool, self.operation, self.steps, self.lease_ms = pool, operation, steps, lease_ms

    def run(self, request: Request, data: Any) -> Answer:
        """Claims and goes on from the last recovery point. `data` is what a completer needs to do the same.

        What a call raises is passed on; the lease stays until it runs out, and then the request goes on from there.
        """
        if request.scope is None or request.key is None:
            raise ValueError("a request on lease has a scope and a key: make the operation's mode \"required\"")
        token = uuid.uuid4()
        point, state, answer = self._transaction(lambda db: self._claim(db, request, token, data))
        if answer is not None:
            return answer
        try:
            return self._steps(request, token, data, point, state)
        except Lost:
            return self._replay(request)

    def complete_abandoned(self, max_rows: int = 100) -> int:
        """Goes on with requests whose lease has run out; returns how many were finished."""
        sql = "SELECT scope, key, fingerprint, data FROM idempotency_abandoned(%s) WHERE operation = %s"
        with self.pool.connection() as db:
            rows = db.cursor(row_factory=tuple_row).execute(sql, (max_rows, self.operation)).fetchall()
        finished = 0
        for scope, key, fingerprint, data in rows:
            request = Request(scope, self.operation, key, fingerprint=bytes(fingerprint) if fingerprint else None)
            finished += self.run(request, data).outcome == "completed"
        return finished

    def _steps(self, request: Request, token: uuid.UUID, data: Any, point: str | None, state: Any) -> Answer:
        names = [step.name for step in self.steps]
        for step in self.steps[names.index(point) + 1 if point else 0 :]:
            work = Work(str(request.scope), self._key(request, step), data, state)
            result = None
            if step.call is not None:
                with self._extended(token):
                    result = step.call(work)
            state = self._transaction(lambda db: self._record(db, token, step, work, result))
            if isinstance(state, Answer):
                return state
        raise RuntimeError(f"the last step of {self.operation} returned no Answer")

    def _claim(self, db: Connection[Any], request: Request, token: uuid.UUID, data: Any) -> tuple[Any, Any, Answer | None]:
        """Recovery point and state, or an answer."""
        values = {**core.claim_values(request), "lease_ms": self.lease_ms, "token": token, "data": json.dumps(data)}
        sql = core.claim_sql(request, parameter).replace(core.COLUMNS, f"{core.COLUMNS}, recovery_point, recovery_data")
        sql = sql[:-1] + ", lease_ms => %(lease_ms)s::integer, token => %(token)s::uuid, data => %(data)s::jsonb)"
        *row, point, state = _row(db, sql, values)
        if row[0] == "bypassed":
            raise ValueError(f"{self.operation} ignores keys, so its work cannot be on lease")
        return point, state, core.refusal_of(row)

    def _record(self, db: Connection[Any], token: uuid.UUID, step: Step, work: Work, result: Any) -> Any:
        """The step's own transaction, in which nobody can take the request over."""
        resumed = _row(db, f"SELECT {core.COLUMNS} FROM idempotency_resume(%(token)s)", {"token": token})
        if resumed[0] != "claimed":  # a COMMIT that succeeded, although we did not learn so
            return core.answer_of(resumed)
        try:
            with db.transaction():
                state = step.record(db, work, result)
        except core.Refused as refused:
            state = refused.answer
        if isinstance(state, Answer):
            sql = core.complete_sql(parameter)[:-1] + ", token => %(token)s::uuid)"
            return core.answer_of(_row(db, sql, {**core.complete_values(state), "token": token}))
        sql = "SELECT FROM idempotency_checkpoint(%(token)s, %(name)s, %(state)s::jsonb)"
        db.execute(sql, {"token": token, "name": step.name, "state": json.dumps(state)})
        return state

    def _transaction(self, work: Callable[[Connection[Any]], T]) -> T:
        for attempt in range(1, core.ATTEMPTS + 1):
            try:
                with self.pool.connection() as db, _rolled_back(db):
                    with db.transaction():
                        return work(db)
            except Error as error:
                if error.sqlstate in LOST:
                    raise Lost from error
                if attempt == core.ATTEMPTS or not core.is_again(error):
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def _extended(self, token: uuid.UUID) -> Iterator[None]:
        """Extends the lease at every third of it, as long as the block runs."""
        ended = threading.Event()

        def extend() -> None:
            while not ended.wait(self.lease_ms / 3000):
                try:
                    with self.pool.connection() as db:
                        db.execute("SELECT FROM idempotency_extend(%s, %s)", (token, self.lease_ms))
                except Error:  # lost, or the server is away: resume will tell
                    continue

        thread = threading.Thread(target=extend, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _key(self, request: Request, step: Step) -> str:
        parts = [str(request.scope), self.operation, str(request.key), step.name]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _replay(self, request: Request) -> Answer:
        sql = f"SELECT {core.COLUMNS} FROM idempotency_replay(%(scope)s, %(operation)s, %(key)s)"
        with self.pool.connection() as db:
            row = _row(db, sql, core.claim_values(request))
        if row[1] is None:  # nobody has it: the lease ran out meanwhile, and a retry takes it over
            return Answer(503, headers={"Retry-After": "1"}, outcome=row[0])
        return core.answer_of(row)


def _row(db: Connection[Any], sql: str, values: dict[str, Any]) -> Any:
    return db.cursor(row_factory=tuple_row).execute(sql, values).fetchone()
