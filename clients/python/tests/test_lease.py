"""Work with a service outside: one effect there and here, whoever dies."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pg_idempotency import Answer, Refused, Request
from pg_idempotency.lease import Runner, Step, Work
from psycopg_pool import ConnectionPool


class Provider:
    """Charges once for each key, and fails as it is told: before the charge, or behind it (the answer is lost)."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.calls = 0
        self.fails_before = self.fails_behind = 0
        self.declines = False

    def charge(self, work: Work) -> int | None:
        self.calls += 1
        if self.fails_before:
            self.fails_before -= 1
            raise ConnectionError("not reached")
        if self.declines:
            return None
        charge = self.charges.setdefault(work.key, len(self.charges) + 1)
        if self.fails_behind:
            self.fails_behind -= 1
            raise ConnectionError("the answer is lost")
        return charge


@pytest.fixture
def pool(url: str) -> Iterator[ConnectionPool]:
    with ConnectionPool(url, min_size=1, max_size=6, kwargs={"autocommit": True, "prepare_threshold": None}) as pool:
        yield pool


def runner(pool: ConnectionPool, provider: Provider, operation: str, lease_ms: int = 60_000) -> Runner:
    def ordered(db: psycopg.Connection, work: Work, _: Any) -> dict[str, int]:
        sql = "INSERT INTO orders (owner, item) VALUES (%s, %s) RETURNING id"
        (identity,) = db.execute(sql, (work.scope, work.data["item"])).fetchone()
        return {"order": identity}

    def paid(db: psycopg.Connection, work: Work, charge: int | None) -> Answer:
        if charge is None:
            raise Refused(402, b"declined")
        db.execute("UPDATE orders SET item = %s WHERE id = %s", (f"paid {charge}", work.state["order"]))
        return Answer(201, b"%d" % work.state["order"])

    return Runner(pool, operation, [Step("ordered", ordered), Step("paid", paid, provider.charge)], lease_ms)


def expire(admin: psycopg.Connection, user: str) -> None:
    """Time passes."""
    admin.execute("UPDATE idempotency.leases SET deadline = clock_timestamp() WHERE scope = %s", (user,))


def items(admin: psycopg.Connection, user: str) -> list[str]:
    return [item for (item,) in admin.execute("SELECT item FROM orders WHERE owner = %s", (user,))]


def test_a_request_and_its_retry(pool: Any, user: str, admin: Any) -> None:
    provider = Provider()
    service = runner(pool, provider, "POST /payments")
    request = Request(user, "POST /payments", "k", "POST", "/payments", b"{}")
    first = service.run(request, {"item": "book"})
    assert (first.outcome, first.status) == ("completed", 201)
    again = service.run(request, {"item": "book"})
    assert (again.outcome, again.body) == ("replayed", first.body)
    assert (items(admin, user), provider.calls) == (["paid 1"], 1)


@pytest.mark.parametrize("fails", ("fails_before", "fails_behind"))
def test_a_call_that_fails_is_gone_on_with_by_a_completer(pool: Any, user: str, admin: Any, fails: str) -> None:
    provider = Provider()
    operation = f"POST /{user}"
    service = runner(pool, provider, operation)
    request = Request(user, operation, "k", "POST", "/payments", b"{}")
    setattr(provider, fails, 1)
    with pytest.raises(ConnectionError):
        service.run(request, {"item": "book"})
    assert service.run(request, {"item": "book"}).outcome == "in_progress"
    assert service.complete_abandoned() == 0
    expire(admin, user)
    assert service.complete_abandoned() == 1
    assert service.run(request, {"item": "book"}).outcome == "replayed"
    assert (items(admin, user), len(provider.charges)) == (["paid 1"], 1)


def test_a_refusal_is_kept(pool: Any, user: str, admin: Any) -> None:
    provider = Provider()
    provider.declines = True
    service = runner(pool, provider, "POST /payments")
    request = Request(user, "POST /payments", "k")
    assert service.run(request, {"item": "book"}).status == 402
    assert service.run(request, {"item": "book"}).outcome == "replayed"
    assert items(admin, user) == ["book"], "what an earlier step has recorded stays"


def test_a_worker_that_was_taken_over_commits_nothing(pool: Any, user: str, admin: Any) -> None:
    provider = Provider()
    request = Request(user, "POST /payments", "k")
    service = runner(pool, provider, "POST /payments")
    slow = Provider()
    slow.charges = provider.charges

    def stalled(work: Work) -> int | None:
        expire(admin, user)
        assert service.run(request, {"item": "book"}).outcome == "completed", "another takes over meanwhile"
        return slow.charge(work)

    late = runner(pool, slow, "POST /payments")
    late.steps = [late.steps[0], Step("paid", late.steps[1].record, stalled)]
    answer = late.run(request, {"item": "book"})
    assert (answer.outcome, answer.status) == ("replayed", 201)
    assert (items(admin, user), len(provider.charges)) == (["paid 1"], 1)


def test_a_lease_is_extended_while_a_call_takes_long(pool: Any, user: str, admin: Any) -> None:
    """The call ends once the deadline has been moved twice."""
    deadlines: set[Any] = set()
    ended = threading.Event()

    class Slow(Provider):
        def charge(self, work: Work) -> int | None:
            while len(deadlines) < 3:
                row = admin.execute("SELECT deadline FROM idempotency.leases WHERE scope = %s", (user,)).fetchone()
                deadlines.add(row[0])
            ended.set()
            return super().charge(work)

    service = runner(pool, Slow(), "POST /payments", lease_ms=3000)
    assert service.run(Request(user, "POST /payments", "k"), {"item": "book"}).outcome == "completed"
    assert ended.is_set() and len(deadlines) == 3


def test_a_request_without_a_key_has_no_lease(pool: Any, user: str) -> None:
    with pytest.raises(ValueError, match="has a scope and a key"):
        runner(pool, Provider(), "POST /payments").run(Request(user, "POST /payments", None), {})
