"""The decorator and the mixin, where a response is more than its content."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import django
import pytest
from conftest import Proxy
from django.conf import settings

CALLS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def project(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    parts = urlsplit(proxy.url)
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, INSTALLED_APPS=["rest_framework"], SECRET_KEY="x",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
                               "PASSWORD": unquote(parts.password or ""), "HOST": parts.hostname, "PORT": parts.port,
                               "ATOMIC_REQUESTS": True}})
    django.setup()
    yield proxy
    from django.db import connections

    connections.close_all()
    proxy.listener.close()


def __getattr__(name: str) -> Any:
    """The URLs, once Django is set up."""
    if name != "urlpatterns":
        raise AttributeError(name)
    from django.db import connection, transaction
    from django.http import Http404, StreamingHttpResponse
    from django.template import engines
    from django.template.response import TemplateResponse
    from django.urls import path
    from pg_idempotency.django import keyed
    from pg_idempotency.drf import IdempotentMixin
    from rest_framework import serializers
    from rest_framework.authentication import BaseAuthentication
    from rest_framework.exceptions import APIException
    from rest_framework.response import Response
    from rest_framework.views import APIView

    def order(owner: str) -> None:
        CALLS.append(owner)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders (owner, item) VALUES (%s, 'book')", (owner,))

    def scope(request: Any) -> Any:
        return request.headers.get("User")

    @keyed("POST /template", scope=scope)
    def template(request: Any) -> Any:
        order(request.headers["User"])
        return TemplateResponse(request, engines["django"].from_string("Thanks, {{ name }}"), {"name": "Anna"}, status=201)

    @keyed("POST /missing", scope=scope)
    def missing(request: Any) -> Any:
        order(request.headers["User"])
        raise Http404

    @keyed("POST /stream", scope=scope)
    def stream(request: Any) -> Any:
        order(request.headers["User"])
        return StreamingHttpResponse(iter([b"a", b"b"]))

    @keyed("POST /broken", scope=scope)
    def broken(request: Any) -> Any:
        """The transaction has failed, and ATOMIC_REQUESTS would say that it is broken."""
        order(request.headers["User"])
        try:
            with transaction.atomic(savepoint=False), connection.cursor() as cursor:
                cursor.execute("INSERT INTO stock VALUES (%s, -1)", (request.headers["User"] + "!",))
        except Exception:
            return TemplateResponse(request, engines["django"].from_string("sold out"), status=409)

    class Conflict(APIException):
        status_code = 409

    class Later(APIException):
        status_code = 503

    class Body(serializers.Serializer):
        item = serializers.CharField()

    class User:
        def __init__(self, pk: str) -> None:
            self.pk = pk

    class Writes(BaseAuthentication):
        """An authentication that writes, which must not come behind the claim's transaction has begun."""

        def authenticate(self, request: Any) -> Any:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO mails (text) VALUES ('seen')")
            return User(request.headers["User"]), None

    class Rest(IdempotentMixin, APIView):
        authentication_classes = [Writes]

        def post(self, request: Any) -> Response:
            order(request.user.pk)
            body = Body(data=request.data)
            body.is_valid(raise_exception=True)
            if body.data["item"] == "refused":
                raise Conflict
            if body.data["item"] == "later":
                raise Later
            return Response(body.data, 201)

    return [path("template", template), path("missing", missing), path("stream", stream), path("broken", broken),
            path("rest", Rest.as_view())]


def post(path: str, user: str, body: bytes = b"{}", key: str = "k") -> Any:
    from django.test import Client

    return Client(raise_request_exception=False).post(
        path, body, content_type="application/json", headers={"User": user, "Idempotency-Key": key})


def content(response: Any) -> bytes:
    return response.getvalue() if response.streaming else response.content


CASES = (
    ("/template", b"{}", 201, (1, 1)),
    ("/stream", b"{}", 200, (1, 1)),
    ("/missing", b"{}", 404, (0, 1)),
    ("/broken", b"{}", 409, (0, 1)),
    ("/rest", b'{"item": "book"}', 201, (1, 1)),
    ("/rest", b'{"item": "refused"}', 409, (0, 1)),
    ("/rest", b"{}", 400, (0, 1)),
    ("/rest", b"{", 400, (0, 1)),
)


@pytest.mark.parametrize("path,body,status,effects", CASES)
def test_an_answer_is_kept(path: str, body: bytes, status: int, effects: tuple[int, int], user: str, orders: Any) -> None:
    first = post(path, user, body)
    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (status, None), first.content
    CALLS.clear()
    again = post(path, user, body)
    assert (again.status_code, content(again), again["Content-Type"]) == (status, content(first), first["Content-Type"])
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (orders(), CALLS) == (effects, [])


def test_an_answer_that_is_not_kept_leaves_nothing(user: str, orders: Any) -> None:
    for _ in range(2):
        assert post("/rest", user, b'{"item": "later"}').status_code == 503
        assert orders() == (0, 0)
    assert post("/rest", user, b'{"item": "book"}').status_code == 201
    assert orders() == (1, 1)


@pytest.mark.parametrize("path,body,authentication", (("/template", b"{}", 0), ("/rest", b'{"item": "book"}', 1)))
def test_round_trips(project: Proxy, path: str, body: bytes, authentication: int, user: str) -> None:
    post(path, user, body, key="warm")
    create = project.count(lambda: post(path, user, body)) - 1 - authentication
    replay = project.count(lambda: post(path, user, body)) - authentication
    assert (create, replay) == (4, 3)
