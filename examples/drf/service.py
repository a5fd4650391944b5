"""Orders, executed at most once per idempotency key: Django REST framework."""

import json, os
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from waitress import create_server

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__, INSTALLED_APPS=["rest_framework"],
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": []},
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": unquote(url.password or ""), "HOST": url.hostname, "PORT": url.port,
        "ATOMIC_REQUESTS": True, "OPTIONS": {"pool": {"min_size": 1, "max_size": 8}}}})
django.setup()

from django.db import DataError, IntegrityError, models
from django.db.models.functions import Cast
from django.urls import path
from pg_idempotency.drf import IdempotentMixin
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, NotAuthenticated, NotFound, ParseError
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.views import APIView


class Order(models.Model):
    owner = models.TextField()
    item = models.TextField()
    request = models.JSONField()

    class Meta:
        app_label, db_table, managed = "orders", "orders", False


class Stock(models.Model):
    item = models.TextField(primary_key=True)
    pieces = models.IntegerField()

    class Meta:
        app_label, db_table, managed = "orders", "stock", False


class User:
    """A user's id. A real service checks the token, and finds its user."""

    def __init__(self, pk):
        self.pk = pk


class Bearer(BaseAuthentication):
    def authenticate(self, request):
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not bearer:
            raise NotAuthenticated("a bearer is wanted")
        return User(bearer), None

    def authenticate_header(self, request):
        return "Bearer"


class AsItIs(BaseRenderer):
    """The bytes of the request are part of the answer, so it is rendered from bytes."""

    media_type, format, charset, render_style = "application/json", "json", None, "binary"

    def render(self, data, accepted_media_type=None, renderer_context=None):
        return data if isinstance(data, bytes) else json.dumps({"error": data["detail"]}).encode()


class NotInStock(APIException):
    status_code, default_detail = 409, "not in stock"


class Text(models.Func):
    """The request as it came: json keeps white space and escapes, which a JSONField does not."""

    template, arity = "convert_from(%(expressions)s, 'UTF8')::json", 1
    output_field = models.JSONField()


class View(APIView):
    authentication_classes, renderer_classes = [Bearer], [AsItIs]
    default_response_headers = {}  # else REST framework adds Allow and Vary


class Create(IdempotentMixin, View):
    def post(self, request):
        body = request._request.body
        try:
            wanted = json.loads(body)
            if not isinstance(wanted, dict) or not isinstance(wanted.get("item"), str):
                raise ValueError
            order = Order.objects.create(
                owner=request.user.pk, item=wanted["item"], request=Text(models.Value(body, models.BinaryField())))
            Stock.objects.filter(item=wanted["item"]).update(pieces=models.F("pieces") - 1)
        except (ValueError, DataError):  # ours, and the database's: not UTF-8, for example
            raise ParseError("a JSON object with an item is wanted")
        except IntegrityError:
            raise NotInStock
        answer = b'{"order": %d, "request": %b}' % (order.pk, body)
        return Response(answer, 201, headers={"Location": f"/orders/{order.pk}"})


class Show(View):
    def get(self, request, order):
        mine = Order.objects.filter(pk=order, owner=request.user.pk)
        found = mine.annotate(text=Cast("request", models.TextField())).values_list("text", flat=True).first()
        if found is None:
            raise NotFound("no such order")
        return Response(f'{{"order": {order}, "request": {found}}}'.encode())


urlpatterns = [path("orders", Create.as_view()), path("orders/<int:order>", Show.as_view())]

if __name__ == "__main__":
    server = create_server(WSGIHandler(), host="127.0.0.1", port=int(os.environ.get("PORT", 0)), threads=64)
    print(f"listening on http://127.0.0.1:{server.effective_port}", flush=True)
    server.run()
