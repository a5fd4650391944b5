"""Orders, executed at most once per idempotency key: a decorator for Django's views."""

import functools, json, os
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.http import HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST
from waitress import create_server

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__, MIDDLEWARE=[f"{__name__}.authenticated"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": unquote(url.password or ""), "HOST": url.hostname, "PORT": url.port,
        "ATOMIC_REQUESTS": True, "OPTIONS": {"pool": {"min_size": 1, "max_size": 8}}}})
django.setup()


def keyed(operation):
    """Has the view executed at most once per key. What it answers with 4xx or 5xx has no effects."""
    def decorate(view):
        @transaction.non_atomic_requests  # the transaction is begun here, so that it can be begun again
        @functools.wraps(view)
        def executed_once(request, *args, **kwargs):
            for last in (False, False, True):
                try:
                    with transaction.atomic(durable=True):
                        outcome, status, headers, body = call(
                            "idempotency_claim(%s, %s, %s, idempotency_fingerprint(%s, %s, body_bytes => %s))",
                            user(request), operation, request.headers.get("Idempotency-Key"),
                            request.method, request.META["REQUEST_URI"], request.body)
                        if outcome in ("claimed", "bypassed"):
                            with transaction.atomic():  # a savepoint
                                response = view(request, *args, **kwargs)
                                if response.status_code >= 400:
                                    transaction.set_rollback(True)
                            outcome, status, headers, body = call(
                                "idempotency_complete(%s, body_bytes => %s, headers => %s)",
                                response.status_code, response.content, json.dumps(dict(response.headers)))
                        if outcome == "released":
                            transaction.set_rollback(True)  # not kept: a retry is executed
                    return HttpResponse(body, status=status, headers=headers)
                except DatabaseError as error:
                    if last or getattr(error.__cause__, "sqlstate", None) not in ("40001", "40P01"):
                        raise
        return executed_once
    return decorate


def call(function, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT outcome, status, headers::text, body FROM {function}", arguments)
        outcome, status, headers, body = cursor.fetchone()
        headers = {name: value if isinstance(value, str) else ", ".join(value)
                   for name, value in json.loads(headers or "{}").items()}
        return outcome, status, headers, body or b""


@require_POST
@keyed("POST /orders")
def create(request):
    try:
        item = item_of(request.body)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders (owner, item, request) "
                           "VALUES (%s, %s, convert_from(%s, 'UTF8')::json) RETURNING id",
                           (user(request), item, request.body))
            order, = cursor.fetchone()
            cursor.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = %s", (item,))
    except (ValueError, DataError):  # ours, and the database's: not UTF-8, for example
        return JsonResponse({"error": "a JSON object with an item is wanted"}, status=400)
    except IntegrityError:
        return JsonResponse({"error": "not in stock"}, status=409)
    body, location = b'{"order": %d, "request": %b}' % (order, request.body), {"Location": f"/orders/{order}"}
    return HttpResponse(body, "application/json", 201, headers=location)


def show(request, order):
    with connection.cursor() as cursor:
        cursor.execute("SELECT request::text FROM orders WHERE id = %s AND owner = %s", (order, user(request)))
        row = cursor.fetchone()
    if row is None:
        return JsonResponse({"error": "no such order"}, status=404)
    return HttpResponse(f'{{"order": {order}, "request": {row[0]}}}', "application/json")


def user(request):
    """Whoever the key belongs to. A real service checks the token, or has request.user."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ") or None


def authenticated(get_response):
    def middleware(request):
        if user(request) is None:
            return JsonResponse({"error": "a bearer is wanted"}, status=401)
        return get_response(request)
    return middleware


def item_of(body):
    """ValueError where there is none."""
    wanted = json.loads(body)
    if not isinstance(wanted, dict) or not isinstance(wanted.get("item"), str):
        raise ValueError
    return wanted["item"]


urlpatterns = [path("orders", create), path("orders/<int:order>", show)]

if __name__ == "__main__":
    server = create_server(WSGIHandler(), host="127.0.0.1", port=int(os.environ.get("PORT", 0)), threads=64)
    print(f"listening on http://127.0.0.1:{server.effective_port}", flush=True)
    server.run()
