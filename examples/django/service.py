"""Orders, executed at most once per idempotency key: Django's views."""

import json, os
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import DataError, IntegrityError, connection
from django.http import HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST
from pg_idempotency.django import keyed
from waitress import create_server

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__, MIDDLEWARE=[f"{__name__}.authenticated"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": unquote(url.password or ""), "HOST": url.hostname, "PORT": url.port,
        "ATOMIC_REQUESTS": True, "OPTIONS": {"pool": {"min_size": 1, "max_size": 8}}}})
django.setup()


def user(request):
    """Whom the key belongs to: a user's id. A real service has request.user, which a token leads to; a token is no scope."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ") or None


@require_POST
@keyed("POST /orders", scope=user)
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
