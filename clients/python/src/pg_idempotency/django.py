"""Django on psycopg 3: a decorator for views. A first request takes four round trips besides its work, a replay three."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.handlers.exception import response_for_exception
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from psycopg.rows import tuple_row

from . import core, psycopg
from .core import Answer, Request

View = Callable[..., HttpResponseBase]
Scope = Callable[[HttpRequest], "str | None"]


def keyed(operation: str, *, scope: Scope, using: str = "default") -> Callable[[View], View]:
    """Has a view executed at most once per key. What it answers with 4xx or 5xx has no effects.

    The view is taken out of ATOMIC_REQUESTS, because its transaction has to be begun here, so that it can be begun again.
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def once(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            def work(_: Any) -> Answer:
                return recorded(_answer_of_view(view, request, args, kwargs))

            return response_of(core.run(units(using), request_of(request, scope(request), operation), work))

        out: View = transaction.non_atomic_requests(using=using)(once)
        return out

    return decorate


def _answer_of_view(view: Any, request: HttpRequest, args: Any, kwargs: Any) -> HttpResponseBase:
    try:
        return view(request, *args, **kwargs)  # type: ignore[no-any-return]
    except (Http404, PermissionDenied) as error:
        return response_for_exception(request, error)


def units(using: str = "default") -> core.Units[None]:
    """A transaction each, on Django's connection: the work uses it as ever."""

    @contextmanager
    def unit() -> Iterator[DjangoUnit]:
        with transaction.atomic(using=using, durable=True):
            yield DjangoUnit(using)

    return unit


class DjangoUnit:
    """`Atomic` begins and ends the transaction; the savepoint is ours, since `atomic` takes a round trip for each end."""

    db = None

    def __init__(self, using: str) -> None:
        self.connection = connections[using]

    def claim(self, request: Request) -> Answer | None:
        raw = self._raw()
        with raw.pipeline():
            claim = raw.cursor(row_factory=tuple_row)
            claim.execute(core.claim_sql(request, psycopg.parameter), core.claim_values(request))
            raw.execute(psycopg.SAVEPOINT)
        return core.refusal_of(claim.fetchone())

    def undo(self) -> None:
        self.connection.needs_rollback = False  # what the savepoint takes back was the reason for it
        self._raw().execute(psycopg.UNDO)

    def complete(self, answer: Answer) -> Answer:
        cursor = self._raw().cursor(row_factory=tuple_row)
        row = cursor.execute(core.complete_sql(psycopg.parameter), core.complete_values(answer)).fetchone()
        if row[0] == "released":
            self.connection.set_rollback(True)
        return core.answer_of(row)

    def _raw(self) -> Any:
        self.connection.ensure_connection()
        return self.connection.connection


def request_of(request: HttpRequest, scope: str | None, operation: str) -> Request:
    return Request(
        scope, operation, request.headers.get("Idempotency-Key"), request.method, raw_path(request), request.body
    )


def raw_path(request: HttpRequest) -> str:
    """As it was sent: waitress and uWSGI have it as REQUEST_URI, gunicorn as RAW_URI, ASGI as bytes."""
    sent = request.META.get("REQUEST_URI") or request.META.get("RAW_URI")
    raw = getattr(request, "scope", {}).get("raw_path")
    return str(sent or (raw.decode("latin-1") if raw else request.get_full_path()))


def recorded(response: HttpResponseBase) -> Answer:
    """The answer of a response. 4xx and 5xx are raised, so that their effects are undone."""
    render = getattr(response, "render", None)
    if render is not None:  # of a template, or of REST framework
        response = render()
    if isinstance(response, HttpResponse):
        body = response.content
    else:
        body = b"".join(response)  # type: ignore[call-overload]  # a StreamingHttpResponse
    headers = core.headers_of(response.items())
    if response.status_code >= 400:
        raise core.Refused(response.status_code, body, headers)
    return Answer(response.status_code, body, headers)


def response_of(answer: Answer) -> HttpResponse:
    """A header of several lines becomes one with commas, which HTTP takes for the same."""
    headers = {name: value if isinstance(value, str) else ", ".join(value) for name, value in answer.headers.items()}
    return HttpResponse(answer.body or b"", status=answer.status, headers=headers)
