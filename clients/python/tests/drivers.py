"""One face for all drivers, so that each test is written once: `keyed(request, work)` with `work(execute)`."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from pg_idempotency import Answer, Request
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

Work = Callable[[Callable[..., list[Any]]], Answer]


class Psycopg:
    """A connection in autocommit. `execute(sql, **values)` returns rows."""

    autocommit = True

    def __init__(self, url: str) -> None:
        self.db = psycopg.connect(url, autocommit=self.autocommit, prepare_threshold=None)

    def keyed(self, request: Request, work: Work) -> Answer:
        from pg_idempotency.psycopg import keyed

        def execute(sql: str, **values: Any) -> list[Any]:
            cursor = self.db.execute(sql.replace(":v", "%(v)s"), values)
            return cursor.fetchall() if cursor.description else []

        return keyed(self.db, request, lambda _: work(execute))

    def close(self) -> None:
        self.db.close()


class PsycopgBegins(Psycopg):
    """A connection that begins by itself."""

    autocommit = False


class PsycopgPool(Psycopg):
    def __init__(self, url: str) -> None:
        from psycopg_pool import ConnectionPool

        self.pool = ConnectionPool(url, min_size=1, max_size=1, open=True,
                                   kwargs={"autocommit": True, "prepare_threshold": None})
        self.pool.wait()

    def keyed(self, request: Request, work: Work) -> Answer:
        from pg_idempotency.psycopg import keyed

        def adapted(db: psycopg.Connection) -> Answer:
            def execute(sql: str, **values: Any) -> list[Any]:
                cursor = db.execute(sql.replace(":v", "%(v)s"), values)
                return cursor.fetchall() if cursor.description else []

            return work(execute)

        return keyed(self.pool, request, adapted)

    def close(self) -> None:
        self.pool.close()


class SQLAlchemy:
    def __init__(self, url: str) -> None:
        self.engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), pool_size=1, max_overflow=0,
                                    connect_args={"prepare_threshold": None})
        self.sessions = sessionmaker(self.engine)

    def keyed(self, request: Request, work: Work) -> Answer:
        from pg_idempotency.sqlalchemy import keyed

        def adapted(session: Any) -> Answer:
            def execute(sql: str, **values: Any) -> list[Any]:
                result = session.execute(text(sql), values)
                return list(result) if result.returns_rows else []

            return work(execute)

        return keyed(self.sessions, request, adapted)

    def close(self) -> None:
        self.engine.dispose()


class Asynchronous:
    """The work is a function as elsewhere; its statements run on the loop of the test's own."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.open(url))

    def keyed(self, request: Request, work: Work) -> Answer:
        async def adapted(db: Any) -> Answer:
            def execute(sql: str, **values: Any) -> list[Any]:
                return asyncio.run_coroutine_threadsafe(self.execute(db, sql, values), self.loop).result()

            return await asyncio.to_thread(work, execute)

        return self.loop.run_until_complete(self.once(request, adapted))

    def close(self) -> None:
        self.loop.run_until_complete(self.shut())
        self.loop.close()


class AsyncPsycopg(Asynchronous):
    async def open(self, url: str) -> None:
        self.db = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None)

    async def once(self, request: Request, work: Any) -> Answer:
        from pg_idempotency.psycopg import keyed_async

        return await keyed_async(self.db, request, work)

    async def execute(self, db: Any, sql: str, values: Any) -> list[Any]:
        cursor = await db.execute(sql.replace(":v", "%(v)s"), values)
        return await cursor.fetchall() if cursor.description else []

    async def shut(self) -> None:
        await self.db.close()


class AsyncSQLAlchemy(Asynchronous):
    name, arguments = "asyncpg", {}

    async def open(self, url: str) -> None:
        url = url.replace("postgresql://", f"postgresql+{self.name}://")
        self.engine = create_async_engine(url, pool_size=1, max_overflow=0, connect_args=self.arguments)
        self.sessions = async_sessionmaker(self.engine)

    async def once(self, request: Request, work: Any) -> Answer:
        from pg_idempotency.sqlalchemy import keyed_async

        return await keyed_async(self.sessions, request, work)

    async def execute(self, db: Any, sql: str, values: Any) -> list[Any]:
        result = await db.execute(text(sql), values)
        return list(result) if result.returns_rows else []

    async def shut(self) -> None:
        await self.engine.dispose()


class AsyncSQLAlchemyPsycopg(AsyncSQLAlchemy):
    name, arguments = "psycopg", {"prepare_threshold": None}


# The round trips of a first request and of a replay, besides those of the work.
TRIPS = {
    Psycopg: (2, 2),
    PsycopgBegins: (3, 3),
    PsycopgPool: (2, 2),
    AsyncPsycopg: (2, 2),
    SQLAlchemy: (5, 3),
    AsyncSQLAlchemy: (5, 3),
    AsyncSQLAlchemyPsycopg: (5, 3),
}
