"""SQLAlchemy 2 with psycopg or asyncpg. A first request takes five round trips besides its work, a replay three.

The work gets a session of its own, in the transaction that has claimed: its commit() and rollback() work on a savepoint,
so endpoints that call them stay as they are. What the work has committed itself stays, also where it is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import CursorResult, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from . import core
from .core import Answer, Request

JOINED = {"join_transaction_mode": "create_savepoint", "expire_on_commit": False}


def keyed(sessions: sessionmaker[Session], request: Request, work: Callable[[Session], Answer]) -> Answer:
    """Has `work(session)` executed at most once and returns what to send, after COMMIT."""
    return core.run(units(sessions), request, work)


async def keyed_async(
    sessions: async_sessionmaker[AsyncSession], request: Request, work: Callable[[AsyncSession], Awaitable[Answer]]
) -> Answer:
    """As `keyed`."""
    return await core.run_async(async_units(sessions), request, work)


def units(sessions: sessionmaker[Session]) -> core.Units[Session]:
    """A transaction each, on a connection of the engine that the sessions are bound to."""
    engine: Engine = sessions.kw["bind"]

    @contextmanager
    def unit() -> Iterator[SessionUnit]:
        with engine.connect() as connection, sessions(bind=connection, **JOINED) as session:
            yield SessionUnit(connection, session)

    return unit


class SessionUnit:
    def __init__(self, connection: Connection, db: Session) -> None:
        self.connection, self.db = connection, db

    def claim(self, request: Request) -> Answer | None:
        self.connection.begin()
        claim = self.connection.execute(text(core.claim_sql(request, parameter)), core.claim_values(request))
        return core.refusal_of(claim.one())

    def undo(self) -> None:
        self.db.rollback()

    def complete(self, answer: Answer) -> Answer:
        self.db.flush()
        row = self.connection.execute(text(core.complete_sql(parameter)), core.complete_values(answer)).one()
        if row.outcome != "released":
            self.connection.commit()
        return core.answer_of(row)


def async_units(sessions: async_sessionmaker[AsyncSession]) -> core.AsyncUnits[AsyncSession]:
    """As `units`."""
    engine: AsyncEngine = sessions.kw["bind"]

    @asynccontextmanager
    async def unit() -> AsyncIterator[AsyncSessionUnit]:
        async with engine.connect() as connection, sessions(bind=connection, **JOINED) as session:
            yield AsyncSessionUnit(connection, session)

    return unit


class AsyncSessionUnit:
    def __init__(self, connection: AsyncConnection, db: AsyncSession) -> None:
        self.connection, self.db = connection, db

    async def claim(self, request: Request) -> Answer | None:
        await self.connection.begin()
        return core.refusal_of((await self._call(core.claim_sql(request, parameter), core.claim_values(request))).one())

    async def undo(self) -> None:
        await self.db.rollback()

    async def complete(self, answer: Answer) -> Answer:
        await self.db.flush()
        row = (await self._call(core.complete_sql(parameter), core.complete_values(answer))).one()
        if row.outcome != "released":
            await self.connection.commit()
        return core.answer_of(row)

    async def _call(self, sql: str, values: dict[str, Any]) -> CursorResult[Any]:
        return await self.connection.execute(text(sql), values)


def parameter(name: str, kind: str) -> str:
    return f"CAST(:{name} AS {kind})"
