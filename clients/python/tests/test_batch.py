"""Batches of a queue: every message has one effect, whatever its neighbours do."""

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from conftest import Proxy
from pg_idempotency import Refused
from pg_idempotency.batch import Result, consume


@dataclass(frozen=True)
class Message:
    id: str | None
    account: str = "book"


def work(user: str) -> Any:
    def work(db: psycopg.Connection, message: Message) -> None:
        db.execute("INSERT INTO orders (owner, item) VALUES (%s, %s)", (user, message.account))
        if message.account == "poison":
            raise ValueError(message.id)
        if message.account == "broken":
            db.execute("SELECT 1 / 0")
        if message.account == "refused":
            raise Refused(422)

    return work


def consumed(db: psycopg.Connection, user: str, *messages: Message) -> Result[Message]:
    return consume(db, user, "book payment", messages, work(user), id_of=lambda message: message.id)


@pytest.fixture
def db(url: str, user: str) -> Any:
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as db:
        yield db


def test_redeliveries_and_duplicates_within_a_batch(db: Any, user: str, orders: Any) -> None:
    messages = [Message(f"m{n}") for n in range(5)]
    assert consumed(db, user, *messages, messages[0]).done == [messages[0], messages[0], *messages[1:]]
    assert consumed(db, user, *messages, Message("m5")).done == [*messages, Message("m5")]
    assert orders() == (6, 6)


def test_poison_does_not_keep_the_others(db: Any, user: str, orders: Any) -> None:
    good, bad = [Message(f"g{n}") for n in range(3)], [Message("b0", "poison"), Message("b1", "broken")]
    for _ in range(2):
        result = consumed(db, user, good[0], bad[0], good[1], bad[1], good[2])
        assert result.done == good
        assert [message for message, _ in result.failed] == bad
        assert [type(error) for _, error in result.failed] == [ValueError, psycopg.errors.DivisionByZero]
        assert orders() == (3, 3)
    assert consumed(db, user, Message("b0")).done == [Message("b0")], "delivered again, and now it works"
    assert orders() == (4, 4)


def test_what_is_refused_is_done_and_has_no_effect(db: Any, user: str, orders: Any) -> None:
    for _ in range(2):
        assert consumed(db, user, Message("r", "refused"), Message("g")).done == [Message("r", "refused"), Message("g")]
    assert orders() == (1, 2)


def test_ids_that_can_be_no_keys_are_set_aside(db: Any, user: str, orders: Any) -> None:
    assert consumed(db, user, Message(""), Message("g")).rejected == [(Message(""), "invalid")]
    assert orders() == (1, 1)


def test_ids_with_commas_and_quotation_marks(db: Any, admin: Any, user: str, orders: Any) -> None:
    """Two of these would be one key, and one none, if they were read as headers."""
    admin.execute("SELECT idempotency_configure(%s, %s)", (user, '{"key_quoting": "raw"}'))
    messages = [Message('"a"'), Message("a"), Message("a, b")]
    for _ in range(2):
        assert consume(db, user, user, messages, work(user), id_of=lambda message: message.id).done == messages
    assert orders() == (3, 3)


def test_what_another_consumer_has_is_left(db: Any, url: str, user: str, orders: Any) -> None:
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM idempotency_claim(%s, 'book payment', 'm1')", (user,))
        assert consumed(db, user, Message("m0"), Message("m1")) == Result(done=[Message("m0")], later=[Message("m1")])
        other.rollback()
    assert consumed(db, user, Message("m1")).done == [Message("m1")]
    assert orders() == (2, 2)


def test_a_consumer_that_dies_before_it_acknowledges(url: str, db: Any, user: str, orders: Any) -> None:
    """Its connection is lost in the work: no effect. It is lost behind COMMIT: one effect, and the redelivery is done."""
    with psycopg.connect(url, autocommit=True) as dying:

        def dies(connection: psycopg.Connection, message: Message) -> None:
            work(user)(connection, message)
            db.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
            connection.execute("SELECT 1")

        with pytest.raises(psycopg.OperationalError):
            consume(dying, user, "book payment", [Message("m")], dies, id_of=lambda message: message.id)
    assert orders() == (0, 0)
    for _ in range(2):
        assert consumed(db, user, Message("m")).done == [Message("m")]
    assert orders() == (1, 1)


def test_round_trips(proxy: Proxy, user: str) -> None:
    """Two for the batch; SAVEPOINT, INSERT and RELEASE of each message."""
    with psycopg.connect(proxy.url, autocommit=True, prepare_threshold=None) as db:
        messages = [Message(f"m{n}") for n in range(10)]
        assert proxy.count(lambda: consumed(db, user, *messages)) == 2 + 3 * len(messages)
        assert proxy.count(lambda: consumed(db, user, *messages)) == 2
