"""Orders, executed at most once per idempotency key: Flask and psycopg 3."""

import json, os
from flask import Flask, Response, request
from psycopg import Rollback, errors
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from waitress import create_server

app = Flask(__name__)
pool = ConnectionPool(
    os.environ["DATABASE_URL"], min_size=1, max_size=8, open=True,
    # prepare_threshold: None, because PgBouncer before 1.21 cannot pass prepared statements on
    kwargs={"autocommit": True, "prepare_threshold": None, "row_factory": namedtuple_row})


class Refused(Exception):
    """A final answer whose effects are undone: status, body, headers."""


def keyed(scope, operation, work):
    """Has `work(db)`, which returns status, body and headers, executed at most once. Returns what to send."""
    for last in (False, False, True):
        try:
            with pool.connection() as db, db.transaction():
                answer = db.execute(
                    "SELECT * FROM idempotency_claim(%s, %s, %s, idempotency_fingerprint(%s, %s, body_bytes => %s))",
                    (scope, operation, request.headers.get("Idempotency-Key"),
                     request.method, request.environ["REQUEST_URI"], request.get_data())).fetchone()
                if answer.outcome in ("claimed", "bypassed"):
                    try:
                        with db.transaction():  # a savepoint
                            status, body, headers = work(db)
                    except Refused as refused:
                        status, body, headers = refused.args
                    answer = db.execute(
                        "SELECT * FROM idempotency_complete(%s, body_bytes => %s, headers => %s)",
                        (status, body, Jsonb({"Content-Type": "application/json"} | headers))).fetchone()
                if answer.outcome == "released":
                    raise Rollback  # not kept: its effects go, and a retry is executed
            return Response(answer.body, answer.status, answer.headers)
        except (errors.SerializationFailure, errors.DeadlockDetected):
            if last:
                raise


@app.post("/orders")
def create():
    body = request.get_data()

    def work(db):
        try:
            item = item_of(body)
            order = db.execute("INSERT INTO orders (owner, item, request) "
                               "VALUES (%s, %s, convert_from(%s, 'UTF8')::json) RETURNING id",
                               (user(), item, body)).fetchone().id
            db.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = %s", (item,))
        except (ValueError, errors.DataError):  # ours, and the database's: not UTF-8, for example
            raise Refused(400, b'{"error": "a JSON object with an item is wanted"}', {})
        except errors.IntegrityError:
            raise Refused(409, b'{"error": "not in stock"}', {})
        return 201, b'{"order": %d, "request": %b}' % (order, body), {"Location": f"/orders/{order}"}

    return keyed(user(), "POST /orders", work)


@app.get("/orders/<int:order>")
def show(order):
    with pool.connection() as db:
        row = db.execute("SELECT request::text FROM orders WHERE id = %s AND owner = %s", (order, user())).fetchone()
    if row is None:
        return error(404, "no such order")
    return Response(f'{{"order": {order}, "request": {row.request}}}', 200, content_type="application/json")


@app.before_request
def authenticate():
    if user() is None:
        return error(401, "a bearer is wanted")


def user():
    """Whoever the key belongs to. A real service checks the token."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ") or None


def item_of(body):
    """ValueError where there is none."""
    wanted = json.loads(body)
    if not isinstance(wanted, dict) or not isinstance(wanted.get("item"), str):
        raise ValueError
    return wanted["item"]


def error(status, text):
    return Response(json.dumps({"error": text}), status, content_type="application/json")


if __name__ == "__main__":
    server = create_server(app, host="127.0.0.1", port=int(os.environ.get("PORT", 0)), threads=64)
    print(f"listening on http://127.0.0.1:{server.effective_port}", flush=True)
    server.run()
