"""psycopg 3. A first request takes two round trips besides its work, a replay two; three where not in autocommit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, Connection, Error, InterfaceError
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from . import core
from .core import Answer, Request

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

SAVEPOINT = "SAVEPOINT idempotency_work"
UNDO = "ROLLBACK TO SAVEPOINT idempotency_work"


def keyed(
    db: Connection[Any] | ConnectionPool[Any], request: Request, work: Callable[[Connection[Any]], Answer]
) -> Answer:
    """Has `work(connection)` executed at most once and returns what to send, after COMMIT."""
    return core.run(units(db), request, work)


async def keyed_async(
    db: AsyncConnection[Any] | AsyncConnectionPool[Any],
    request: Request,
    work: Callable[[AsyncConnection[Any]], Awaitable[Answer]],
) -> Answer:
    """As `keyed`."""
    return await core.run_async(async_units(db), request, work)


def units(db: Connection[Any] | ConnectionPool[Any]) -> core.Units[Connection[Any]]:
    """A transaction each, on this connection or one of the pool's."""

    @contextmanager
    def unit() -> Iterator[PsycopgUnit]:
        if isinstance(db, Connection):
            with _rolled_back(db):
                yield PsycopgUnit(db)
        else:
            with db.connection() as connection, _rolled_back(connection):
                yield PsycopgUnit(connection)

    return unit


@contextmanager
def _rolled_back(db: Connection[Any]) -> Iterator[None]:
    """Begins with no transaction, and leaves none."""
    _refuse_open(db)
    try:
        yield
    finally:
        if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
            db.rollback()


class PsycopgUnit:
    def __init__(self, db: Connection[Any]) -> None:
        self.db = db

    def claim(self, request: Request) -> Answer | None:
        with self.db.pipeline():
            if self.db.autocommit:  # else psycopg begins by itself
                self.db.execute("BEGIN")
            claim = self._call(core.claim_sql(request, parameter), core.claim_values(request))
            self.db.execute(SAVEPOINT)
        return core.refusal_of(claim.fetchone())

    def undo(self) -> None:
        self.db.execute(UNDO)

    def complete(self, answer: Answer) -> Answer:
        arguments = core.complete_sql(parameter), core.complete_values(answer)
        if answer.status >= 400:  # it may be one that is not kept
            row = self._call(*arguments).fetchone()
            if row[0] != "released":
                self.db.commit()
            return core.answer_of(row)
        complete = None
        try:
            with self.db.pipeline():
                complete = self._call(*arguments)
                self.db.execute("COMMIT")
        except Error as error:
            if error.sqlstate != core.UNSETTLED or complete is None or (row := complete.fetchone())[0] != "released":
                raise
            return core.answer_of(row)  # not kept, and COMMIT was refused: all is rolled back
        return core.answer_of(complete.fetchone())

    def _call(self, sql: str, values: dict[str, Any]) -> Any:
        return self.db.cursor(row_factory=tuple_row).execute(sql, values)


def async_units(db: AsyncConnection[Any] | AsyncConnectionPool[Any]) -> core.AsyncUnits[AsyncConnection[Any]]:
    """As `units`."""

    @asynccontextmanager
    async def unit() -> AsyncIterator[AsyncPsycopgUnit]:
        if isinstance(db, AsyncConnection):
            async with _rolled_back_async(db):
                yield AsyncPsycopgUnit(db)
        else:
            async with db.connection() as connection, _rolled_back_async(connection):
                yield AsyncPsycopgUnit(connection)

    return unit


@asynccontextmanager
async def _rolled_back_async(db: AsyncConnection[Any]) -> AsyncIterator[None]:
    _refuse_open(db)
    try:
        yield
    finally:
        if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
            await db.rollback()


class AsyncPsycopgUnit:
    def __init__(self, db: AsyncConnection[Any]) -> None:
        self.db = db

    async def claim(self, request: Request) -> Answer | None:
        async with self.db.pipeline():
            if self.db.autocommit:
                await self.db.execute("BEGIN")
            claim = await self._call(core.claim_sql(request, parameter), core.claim_values(request))
            await self.db.execute(SAVEPOINT)
        return core.refusal_of(await claim.fetchone())

    async def undo(self) -> None:
        await self.db.execute(UNDO)

    async def complete(self, answer: Answer) -> Answer:
        arguments = core.complete_sql(parameter), core.complete_values(answer)
        if answer.status >= 400:
            row = await (await self._call(*arguments)).fetchone()
            if row[0] != "released":
                await self.db.commit()
            return core.answer_of(row)
        complete = None
        try:
            async with self.db.pipeline():
                complete = await self._call(*arguments)
                await self.db.execute("COMMIT")
        except Error as error:
            if error.sqlstate != core.UNSETTLED or complete is None or (row := await complete.fetchone())[0] != "released":
                raise
            return core.answer_of(row)
        return core.answer_of(await complete.fetchone())

    async def _call(self, sql: str, values: dict[str, Any]) -> Any:
        return await self.db.cursor(row_factory=tuple_row).execute(sql, values)


def parameter(name: str, kind: str) -> str:
    return f"%({name})s::{kind}"


def _refuse_open(db: Any) -> None:
    if db.info.transaction_status != TransactionStatus.IDLE:
        raise InterfaceError("the connection is in a transaction: the claim has to begin its own")
