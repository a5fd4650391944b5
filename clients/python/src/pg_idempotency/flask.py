"""Flask, on the units of any driver's module here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flask import Response, current_app, g, make_response, request

from . import core
from .core import Answer, Request


class Idempotency:
    """For all keyed views of an application: `Idempotency(units(pool), scope=user)`, and `@idempotency.keyed` below the route.

    `scope` takes nothing and returns whom the key belongs to, or None for nobody.
    """

    def __init__(self, units: core.Units[Any], scope: Callable[[], str | None]) -> None:
        self.units, self.scope = units, scope

    @property
    def db(self) -> Any:
        """The connection or session of the transaction that has claimed."""
        return g._idempotency_db

    def keyed(self, view: Callable[..., Any]) -> Callable[..., Response]:
        """Has the view executed at most once per key. What it answers with 4xx or 5xx has no effects."""

        @functools.wraps(view)
        def once(*args: Any, **kwargs: Any) -> Response:
            def work(db: Any) -> Answer:
                g._idempotency_db = db
                return _recorded(functools.partial(view, *args, **kwargs))

            return _response(core.run(self.units, self._request(), work))

        return once

    def _request(self) -> Request:
        environ = request.environ  # waitress and uWSGI have the path as it was sent, and gunicorn under another name
        path = environ.get("REQUEST_URI") or environ.get("RAW_URI") or request.full_path
        key = core.one_header(request.headers.getlist("Idempotency-Key"))
        operation = f"{request.method} {request.url_rule}"
        return Request(self.scope(), operation, key, request.method, path, request.get_data())


def _recorded(view: Callable[[], Any]) -> Answer:
    try:
        response = make_response(current_app.ensure_sync(view)())
    except Exception as error:
        if core.is_again(error):
            raise
        response = make_response(current_app.handle_user_exception(error))  # raises what is no answer
    body, headers = response.get_data(), core.headers_of(response.headers)
    if response.status_code >= 400:
        raise core.Refused(response.status_code, body, headers)
    return Answer(response.status_code, body, headers)


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.headers.clear()
    for name, value in answer.header_lines():
        response.headers.add(name, value)
    return response
