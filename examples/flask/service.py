"""Orders, executed at most once per idempotency key: Flask and psycopg 3."""

import json, os
from flask import Flask, Response, request
from pg_idempotency.flask import Idempotency
from pg_idempotency.psycopg import units
from psycopg import errors
from psycopg_pool import ConnectionPool
from waitress import create_server

app = Flask(__name__)
pool = ConnectionPool(
    os.environ["DATABASE_URL"], min_size=1, max_size=8, open=True,
    # prepare_threshold: None, because PgBouncer before 1.21 cannot pass prepared statements on
    kwargs={"autocommit": True, "prepare_threshold": None})


def user():
    """Whom the key belongs to: a user's id. A real service checks the token and finds its user; a token is no scope."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ") or None


idempotency = Idempotency(units(pool), scope=user)


@app.post("/orders")
@idempotency.keyed
def create():
    body, db = request.get_data(), idempotency.db
    try:
        item = item_of(body)
        order, = db.execute("INSERT INTO orders (owner, item, request) "
                            "VALUES (%s, %s, convert_from(%s, 'UTF8')::json) RETURNING id",
                            (user(), item, body)).fetchone()
        db.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = %s", (item,))
    except (ValueError, errors.DataError):  # ours, and the database's: not UTF-8, for example
        return error(400, "a JSON object with an item is wanted")
    except errors.IntegrityError:
        return error(409, "not in stock")
    return Response(b'{"order": %d, "request": %b}' % (order, body), 201, {"Location": f"/orders/{order}"},
                    content_type="application/json")


@app.get("/orders/<int:order>")
def show(order):
    with pool.connection() as db:
        row = db.execute("SELECT request::text FROM orders WHERE id = %s AND owner = %s", (order, user())).fetchone()
    if row is None:
        return error(404, "no such order")
    return Response(f'{{"order": {order}, "request": {row[0]}}}', 200, content_type="application/json")


@app.before_request
def authenticate():
    if user() is None:
        return error(401, "a bearer is wanted")


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
