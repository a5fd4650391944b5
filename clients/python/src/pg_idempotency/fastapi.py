"""FastAPI, on the units of any asynchronous driver's module here: a route class that commits before it sends."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from . import core
from .core import Answer

Scope = Callable[[Request], "str | None | Awaitable[str | None]"]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Idempotency:
    """`APIRouter(route_class=Idempotency(async_units(sessions), scope=user_of).route)`; `Depends(idempotency.db)` in endpoints.

    `scope` takes the request and returns whom the key belongs to, or None for nobody; it may raise an HTTPException.
    """

    def __init__(self, units: core.AsyncUnits[Any], scope: Scope, max_answer: int = 16 * 1024 * 1024) -> None:
        self.units, self.scope, self.max_answer = units, scope, max_answer
        self._db: ContextVar[Any] = ContextVar("idempotency_db")

    async def db(self) -> Any:
        """A dependency: the connection or session of the transaction that has claimed."""
        return self._db.get()

    @property
    def route(idempotency) -> type[APIRoute]:  # noqa: N805
        """Routes of POST, PUT, PATCH and DELETE are keyed. What they answer with 4xx or 5xx has no effects."""

        class IdempotentRoute(APIRoute):
            def get_route_handler(self) -> Handler:
                handler = super().get_route_handler()

                async def once(request: Request) -> Response:
                    if request.method in ("GET", "HEAD", "OPTIONS"):
                        return await handler(request)
                    return await idempotency._once(f"{request.method} {self.path_format}", handler, request)

                return once

        return IdempotentRoute

    async def _once(self, operation: str, handler: Handler, request: Request) -> Response:
        scope = self.scope(request)
        keyed = core.Request(
            await scope if inspect.isawaitable(scope) else scope,
            operation,
            core.one_header(request.headers.getlist("Idempotency-Key")),
            request.method,
            request.scope["raw_path"].decode("latin-1"),
            await request.body(),
        )
        background: Any = None

        async def work(db: Any) -> Answer:
            nonlocal background
            self._db.set(db)
            response = await _answered(handler, request, keyed.body)
            background, response.background = response.background, None
            return await _recorded(response, request, self.max_answer)

        answer = await core.run_async(self.units, keyed, work)
        return _response(answer, background if answer.is_kept else None)


async def _answered(handler: Handler, request: Request, body: bytes) -> Response:
    """The endpoint's answer, or that of the application's handler for what it raised: that is to be recorded too."""
    try:
        return await handler(Request(request.scope, _body_again(body, request.receive)))
    except Exception as error:
        handle = None if core.is_again(error) else _handler_of(request, error)
        if handle is None:
            raise
        if inspect.iscoroutinefunction(handle):
            return await handle(request, error)  # type: ignore[no-any-return]
        return await run_in_threadpool(handle, request, error)


def _handler_of(request: Request, error: Exception) -> Any:
    """As Starlette looks it up, but for the one of all exceptions, which makes a 500."""
    handlers = request.app.exception_handlers
    if isinstance(error, HTTPException) and error.status_code in handlers:
        return handlers[error.status_code]
    return next((handlers[kind] for kind in type(error).__mro__ if kind is not Exception and kind in handlers), None)


def _body_again(body: bytes, receive: Receive) -> Receive:
    """The body has been read; what comes behind it (a disconnect) has not."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _recorded(response: Response, request: Request, max_answer: int) -> Answer:
    """Has the response, of whatever class, send to us."""
    lines: list[tuple[str, str]] = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
    if any(name == "content-type" and value.startswith("text/event-stream") for name, value in lines):
        raise TypeError("an event stream cannot be recorded: take its route out of the keyed router")
    status, chunks, size = response.status_code, [], 0

    async def send(message: Message) -> None:
        nonlocal lines, status, size
        if message["type"] == "http.response.start":
            status = message["status"]
            lines = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", ())]
        elif message["type"] == "http.response.body":
            size += len(message.get("body", b""))
            if size > max_answer:
                raise ValueError(f"an answer of more than {max_answer} bytes cannot be recorded: see max_answer")
            chunks.append(bytes(message.get("body", b"")))

    # Without extensions of the server, and without a client that hangs up: so all of it comes, as messages.
    scope = {**request.scope, "extensions": {}}
    await response(scope, _never, send)
    answer = Answer(status, b"".join(chunks), core.headers_of(lines))
    if status >= 400:
        raise core.Refused(status, answer.body, answer.headers)
    return answer


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def _response(answer: Answer, background: Any) -> Response:
    response = Response(answer.body or b"", answer.status, background=background)
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.header_lines()]
    response.raw_headers = [line for line in response.raw_headers if line[0] == b"content-length"] + lines
    return response
