"""Django REST framework: a mixin for views and view sets."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from django.db import transaction
from django.http import HttpResponseBase
from rest_framework.request import Request

from . import core
from .core import Answer
from .django import recorded, request_of, response_of, units


class IdempotentMixin:
    """Has the handlers of unsafe methods executed at most once per key. Goes before the view's class.

    Authentication, permissions and throttles run before the claim, outside of its transaction, so they may write, and
    what they refuse is not recorded. The view is taken out of ATOMIC_REQUESTS: its transaction is begun at the handler,
    and begun again after 40001 and 40P01.
    """

    operation: ClassVar[str | None] = None  # by default the method and the route: POST /orders
    idempotent_methods: ClassVar[tuple[str, ...]] = ("POST", "PUT", "PATCH", "DELETE")
    database: ClassVar[str] = "default"

    def idempotency_scope(self, request: Request) -> str | None:
        """Whom the key belongs to; never a token, since the next session has another one."""
        return None if request.user is None or request.user.pk is None else str(request.user.pk)

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        view = super().as_view(*args, **kwargs)  # type: ignore[misc]
        return transaction.non_atomic_requests(using=cls.database)(view)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Called by dispatch before it looks for the handler."""
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        name = (request.method or "").lower()
        handler = getattr(self, name, None)
        if request.method in self.idempotent_methods and handler is not None:
            setattr(self, name, functools.partial(self._once, handler))

    def _once(self, handler: Any, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        http = request._request
        route = http.resolver_match.route if http.resolver_match else http.path
        operation = self.operation or f"{request.method} /{route}"

        def work(_: Any) -> Answer:
            try:
                response = handler(request, *args, **kwargs)
            except Exception as error:
                if core.is_again(error):
                    raise
                response = self.handle_exception(error)  # type: ignore[attr-defined]  # raises what is no answer
            return recorded(self.finalize_response(request, response, *args, **kwargs))  # type: ignore[attr-defined]

        keyed = request_of(http, self.idempotency_scope(request), operation)
        return response_of(core.run(units(self.database), keyed, work))
