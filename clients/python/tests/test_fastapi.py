"""The route class, over HTTP: what is an answer, what is sent when, and what is done behind it."""

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pg_idempotency.fastapi import Idempotency
from pg_idempotency.sqlalchemy import async_units
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine


class Order(BaseModel):
    item: str


class SoldOut(Exception):
    pass


def application(url: str) -> FastAPI:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    sessions = async_sessionmaker(engine)
    idempotency = Idempotency(async_units(sessions), scope=lambda request: request.headers.get("User"), max_answer=100_000)
    router = APIRouter(prefix="/api", route_class=idempotency.route)
    Session = Annotated[AsyncSession, Depends(idempotency.db)]

    async def mail(words: str) -> None:
        async with sessions.begin() as session:
            await session.execute(text("INSERT INTO mails (text) VALUES (:text)"), {"text": words})

    async def insert(session: AsyncSession, request: Request) -> int:
        sql = text("INSERT INTO orders (owner, item) VALUES (:owner, 'book') RETURNING id")
        return (await session.execute(sql, {"owner": request.headers["User"]})).scalar_one()

    @router.post("/orders/{place}", status_code=201)
    async def create(place: str, order: Order, request: Request, session: Session, tasks: BackgroundTasks) -> dict[str, Any]:
        identity = await insert(session, request)
        tasks.add_task(mail, request.headers["User"])
        if order.item == "refused":
            raise HTTPException(409, "sold out", headers={"X-Why": "none left"})
        if order.item == "domain":
            raise SoldOut
        if order.item == "later":
            raise HTTPException(503, "later", headers={"Retry-After": "7"})
        if order.item == "boom":
            raise RuntimeError("boom")
        return {"id": identity, "item": order.item, "place": place}

    @router.post("/commits", status_code=201)
    async def commits(request: Request, session: Session) -> None:
        await insert(session, request)
        await session.commit()

    @router.post("/stream")
    async def stream(request: Request, session: Session) -> StreamingResponse:
        identity = await insert(session, request)

        async def lines() -> AsyncIterator[str]:
            for n in range(3):
                await asyncio.sleep(0)
                yield f"{identity} {n}\n"

        return StreamingResponse(lines(), media_type="text/csv")

    @router.post("/events")
    async def events(request: Request, session: Session) -> StreamingResponse:
        await insert(session, request)
        return StreamingResponse(iter(()), media_type="text/event-stream")

    @router.post("/endless")
    async def endless(request: Request, session: Session) -> StreamingResponse:
        await insert(session, request)
        return StreamingResponse((b"x" * 1000 for _ in iter(int, 1)), media_type="text/plain")

    @router.post("/file")
    async def file(request: Request, session: Session) -> FileResponse:
        await insert(session, request)
        return FileResponse(__file__, media_type="text/x-python")

    @router.get("/orders")
    async def show() -> str:
        return "shown"

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)
    app.include_router(router)

    @app.exception_handler(SoldOut)
    def sold_out(request: Request, error: SoldOut) -> JSONResponse:
        return JSONResponse({"sold": "out"}, 410)

    return app


@pytest.fixture(scope="module")
def post(url: str) -> Iterator[Callable[..., http.client.HTTPResponse]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(url), log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def post(path: str, user: str, key: str | tuple[str, ...] | None, body: bytes = b"", method: str = "POST") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1])
        connection.putrequest(method, "/api" + path)
        keys = [] if key is None else [key] if isinstance(key, str) else key
        lines = [("User", user), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        for name, value in lines + [("Idempotency-Key", key) for key in keys]:
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        response.content = response.read()
        return response

    yield post
    server.should_exit = True
    thread.join()


def headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    left_out = ("date", "server", "idempotent-replayed")
    return {name.lower(): value for name, value in response.getheaders() if name.lower() not in left_out}


def mails(admin: Any, user: str) -> int:
    return admin.execute("SELECT count(*) FROM mails WHERE text = %s", (user,)).fetchone()[0]


def is_replay_of(again: Any, first: Any) -> bool:
    same = (again.status, again.content, headers_of(again)) == (first.status, first.content, headers_of(first))
    return same and again.getheader("Idempotent-Replayed") == "true" and first.getheader("Idempotent-Replayed") is None


def test_a_create_and_its_background_task_happen_once(post: Any, user: str, orders: Any, admin: Any) -> None:
    first = post("/orders/sea", user, "k", b'{"item": "book"}')
    assert first.status == 201 and b'"place":"sea"' in first.content
    for _ in range(2):
        assert is_replay_of(post("/orders/sea", user, "k", b'{"item": "book"}'), first)
    assert orders() == (1, 1)
    wait_for(lambda: mails(admin, user) == 1)
    operation = admin.execute("SELECT operation FROM idempotency.records WHERE scope = %s", (user,)).fetchone()
    assert operation == ("POST /api/orders/{place}",)
    assert post("/orders/land", user, "k", b'{"item": "book"}').status == 422, "the path is part of the request"


def wait_for(condition: Callable[[], bool]) -> None:
    """A background task runs behind the answer."""
    for _ in range(10_000):
        if condition():
            return
    raise AssertionError("it does not come true")


@pytest.mark.parametrize("body,status", ((b'{"item": "refused"}', 409), (b'{"item": "domain"}', 410), (b'{"item": 5}', 422), (b"{", 422)))
def test_errors_that_are_answers_are_kept_without_effects(post: Any, user: str, orders: Any, admin: Any, body: bytes, status: int) -> None:
    first = post("/orders/sea", user, "k", body)
    assert first.status == status
    assert (first.getheader("X-Why") == "none left") == (status == 409)
    assert is_replay_of(post("/orders/sea", user, "k", body), first)
    assert orders() == (0, 1)
    assert mails(admin, user) == 0


@pytest.mark.parametrize("body,status", ((b'{"item": "later"}', 503), (b'{"item": "boom"}', 500)))
def test_errors_that_are_none_leave_nothing(post: Any, user: str, orders: Any, admin: Any, body: bytes, status: int) -> None:
    for _ in range(2):
        answer = post("/orders/sea", user, "k", body)
        assert (answer.status, answer.getheader("Idempotent-Replayed")) == (status, None)
        assert orders() == (0, 0)
    assert post("/orders/sea", user, "k", b'{"item": "book"}').status == 201, "the key is free"
    assert orders() == (1, 1)


def test_an_endpoint_that_commits_itself(post: Any, user: str, orders: Any) -> None:
    first = post("/commits", user, "k")
    assert is_replay_of(post("/commits", user, "k"), first)
    assert orders() == (1, 1)


@pytest.mark.parametrize("path", ("/stream", "/file"))
def test_what_is_sent_in_pieces_is_recorded_whole(post: Any, user: str, orders: Any, path: str) -> None:
    first = post(path, user, "k")
    assert first.status == 200 and first.content.count(b"\n") >= 3
    assert is_replay_of(post(path, user, "k"), first)
    assert orders() == (1, 1)


@pytest.mark.parametrize("path", ("/events", "/endless"))
def test_what_cannot_be_recorded_is_refused(post: Any, user: str, orders: Any, path: str) -> None:
    assert post(path, user, "k").status == 500
    assert orders() == (0, 0)


def test_two_header_lines_are_no_key(post: Any, user: str, orders: Any) -> None:
    assert post("/orders/sea", user, ("k", "l"), b'{"item": "book"}').status == 400
    assert orders() == (0, 0)


def test_without_a_key_and_reads(post: Any, user: str, orders: Any) -> None:
    for _ in range(2):
        assert post("/orders/sea", user, None, b'{"item": "book"}').status == 201
    assert orders() == (2, 0)
    assert post("/orders", user, "k", method="GET").content == b'"shown"'
