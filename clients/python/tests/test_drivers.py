"""`keyed` of each driver: one effect, whatever happens."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from conftest import Proxy
from drivers import TRIPS
from pg_idempotency import Answer, Refused, Request

ALL = pytest.mark.parametrize("driver", TRIPS, ids=lambda driver: driver.__name__)
BODY = b'{ "item": "b\xc3\xbcch" }'


@pytest.fixture
def opened() -> Iterator[Callable[[Any, str], Any]]:
    drivers: list[Any] = []

    def opened(driver: Any, url: str) -> Any:
        drivers.append(driver(url))
        return drivers[-1]

    yield opened
    for driver in drivers:
        driver.close()


def request_of(user: str, key: str | None = "k", body: bytes = BODY) -> Request:
    return Request(user, "POST /orders", key, "POST", "/orders", body)


def order(execute: Callable[..., list[Any]], user: str) -> Answer:
    ((identity,),) = execute("INSERT INTO orders (owner, item) VALUES (:v, 'book') RETURNING id", v=user)
    return Answer(201, b"%d\xff" % identity, {"Location": f"/orders/{identity}", "Link": ["<a>", "<b>"]})


@ALL
def test_a_retry_gets_the_first_answer(driver: Any, opened: Any, url: str, user: str, orders: Any) -> None:
    db = opened(driver, url)
    first = db.keyed(request_of(user), lambda execute: order(execute, user))
    assert (first.outcome, first.status, first.is_kept) == ("completed", 201, True)
    again = db.keyed(request_of(user), lambda execute: pytest.fail("executed again"))
    assert (again.outcome, again.status, again.body, again.is_kept) == ("replayed", 201, first.body, False)
    assert again.headers == {**first.headers, "Idempotent-Replayed": "true"}
    assert list(first.header_lines()).count(("Link", "<a>")) == 1
    assert orders() == (1, 1)


@ALL
def test_another_body_is_refused_and_no_key_is_executed(driver: Any, opened: Any, url: str, user: str, orders: Any) -> None:
    db = opened(driver, url)
    db.keyed(request_of(user), lambda execute: order(execute, user))
    refused = db.keyed(request_of(user, body=b"{}"), lambda execute: pytest.fail("executed"))
    assert (refused.outcome, refused.status) == ("mismatch", 422)
    for _ in range(2):
        assert db.keyed(request_of(user, None), lambda execute: order(execute, user)).outcome == "bypassed"
    assert orders() == (3, 1)


@ALL
def test_what_is_refused_has_no_effect_and_is_kept(driver: Any, opened: Any, url: str, user: str, orders: Any) -> None:
    db = opened(driver, url)

    def sold_out(execute: Any) -> Answer:
        order(execute, user)
        try:
            execute("UPDATE stock SET pieces = -1 WHERE item = :v", v=user)
        except Exception:
            raise Refused(409, b"sold out") from None
        raise AssertionError("a negative stock was accepted")

    first = db.keyed(request_of(user), sold_out)
    assert (first.outcome, first.status, first.body) == ("completed", 409, b"sold out")
    assert db.keyed(request_of(user), lambda execute: pytest.fail("executed again")).body == b"sold out"
    assert orders() == (0, 1)


@ALL
@pytest.mark.parametrize("status", (503, 299), ids=("asks for a retry", "a success that is not kept"))
def test_what_is_not_kept_has_no_effect(
    driver: Any, status: int, opened: Any, url: str, user: str, orders: Any, admin: psycopg.Connection
) -> None:
    db = opened(driver, url)
    operation = f"POST /{user}"
    admin.execute("SELECT idempotency_configure(%s, %s)", (operation, '{"kept_statuses": "{[200,299)}"}'))
    request = Request(user, operation, "k")

    def later(execute: Any) -> Answer:
        order(execute, user)
        return Answer(status, b"later")

    for _ in range(2):
        answer = db.keyed(request, later)
        assert (answer.outcome, answer.status, answer.body, answer.is_kept) == ("released", status, b"later", False)
        assert orders() == (0, 0)
    assert db.keyed(request, lambda execute: order(execute, user)).outcome == "completed"
    assert orders() == (1, 1)


@ALL
def test_an_error_is_passed_on_and_a_retry_is_executed(driver: Any, opened: Any, url: str, user: str, orders: Any) -> None:
    db = opened(driver, url)

    def fail(execute: Any) -> Answer:
        order(execute, user)
        raise RuntimeError("unforeseen")

    with pytest.raises(RuntimeError, match="unforeseen"):
        db.keyed(request_of(user), fail)
    assert orders() == (0, 0)
    assert db.keyed(request_of(user), lambda execute: order(execute, user)).outcome == "completed"
    assert orders() == (1, 1)


@ALL
def test_a_serialization_failure_is_tried_again(
    driver: Any, opened: Any, url: str, user: str, orders: Any, admin: psycopg.Connection
) -> None:
    admin.execute(f"CREATE ROLE \"{user}\" LOGIN SUPERUSER PASSWORD 'p'")
    admin.execute(f"ALTER ROLE \"{user}\" SET default_transaction_isolation = 'repeatable read'")
    place = url.split("@")[1]
    db = opened(driver, f"postgresql://{user}:p@{place}")
    calls = []

    def work(execute: Any) -> Answer:
        calls.append(execute("SELECT pieces FROM stock WHERE item = :v", v=user)[0][0])
        if len(calls) == 1:
            admin.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = %s", (user,))
        execute("UPDATE stock SET pieces = pieces - 1 WHERE item = :v", v=user)
        return order(execute, user)

    assert db.keyed(request_of(user), work).outcome == "completed"
    assert calls == [10, 9]
    assert orders() == (1, 1)
    assert admin.execute("SELECT pieces FROM stock WHERE item = %s", (user,)).fetchone() == (8,)


@ALL
def test_a_backend_that_is_terminated_has_no_effect(
    driver: Any, opened: Any, url: str, user: str, orders: Any, admin: psycopg.Connection
) -> None:
    db = opened(driver, url)

    def work(execute: Any) -> Answer:
        order(execute, user)
        ((pid,),) = execute("SELECT pg_backend_pid()")
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        return order(execute, user)

    with pytest.raises(Exception, match="(?i)terminat|closed|lost"):
        db.keyed(request_of(user), work)
    assert orders() == (0, 0)
    assert opened(driver, url).keyed(request_of(user), lambda execute: order(execute, user)).outcome == "completed"
    assert orders() == (1, 1)


@ALL
def test_duplicates_at_once_have_one_effect(
    driver: Any, opened: Any, url: str, user: str, orders: Any, admin: psycopg.Connection
) -> None:
    """The first stands in its work until two others wait for its key."""
    dbs = [opened(driver, url) for _ in range(3)]
    answers: list[Answer] = []

    def work(execute: Any) -> Answer:
        ((pid,),) = execute("SELECT pg_backend_pid()")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        while admin.execute(waiting, (pid,)).fetchone() != (2,):
            pass
        return order(execute, user)

    threads = [
        threading.Thread(target=lambda db=db: answers.append(db.keyed(request_of(user), work))) for db in dbs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.outcome for answer in answers) == ["completed", "replayed", "replayed"]
    assert len({answer.body for answer in answers}) == 1
    assert orders() == (1, 1)


@ALL
def test_round_trips(driver: Any, opened: Any, proxy: Proxy, user: str) -> None:
    db = opened(driver, proxy.url)
    for key in ("warm", "up"):  # what a driver asks once for each connection
        db.keyed(request_of(user, key), lambda execute: order(execute, user))
        db.keyed(request_of(user, key), lambda execute: order(execute, user))
    create = proxy.count(lambda: db.keyed(request_of(user, "k"), lambda execute: order(execute, user))) - 1
    replay = proxy.count(lambda: db.keyed(request_of(user, "k"), lambda execute: order(execute, user)))
    assert (create, replay) == TRIPS[driver]


def test_a_connection_in_a_transaction_is_refused(url: str, user: str) -> None:
    from pg_idempotency.psycopg import keyed

    with psycopg.connect(url) as db:
        db.execute("SELECT 1")
        with pytest.raises(psycopg.InterfaceError, match="is in a transaction"):
            keyed(db, request_of(user), lambda db: pytest.fail("executed"))
        assert db.execute("SELECT 1").fetchone() == (1,), "and the transaction is as it was"


def test_work_that_commits_itself_commits_with_its_record(url: str, user: str, orders: Any) -> None:
    """SQLAlchemy: commit() and rollback() of the work are those of a savepoint."""
    from pg_idempotency.sqlalchemy import keyed
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session, sessionmaker

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    insert, values = text("INSERT INTO orders (owner, item) VALUES (:v, 'book')"), {"v": user}

    def work(session: Session) -> Answer:
        session.execute(insert, values)
        session.commit()
        assert orders() == (0, 0), "nobody else sees it yet"
        session.execute(insert, values)
        session.rollback()
        session.execute(insert, values)
        return Answer(201)

    for _ in range(2):
        assert keyed(sessionmaker(engine), request_of(user), work).status == 201
    assert orders() == (2, 1)
    engine.dispose()
