"""Messages of a queue that delivers at least once, a batch in one transaction (psycopg 3).

A batch takes two round trips besides its work and two savepoint commands for each new message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from psycopg import Connection
from psycopg.rows import tuple_row

from .core import ATTEMPTS, Refused, is_again
from .psycopg import _rolled_back

Message = TypeVar("Message")
CLAIM = """SELECT ordinal, outcome, token::text FROM idempotency_claim_many(%s, %s, %s::text[], wait_ms => %s)"""
COMPLETE = """SELECT c.outcome FROM unnest(%s::uuid[], %s::integer[]) AS t (token, status),
    LATERAL idempotency_complete(t.status, token => t.token) AS c"""


@dataclass
class Result(Generic[Message]):
    """What became of the messages of a batch, after COMMIT."""

    done: list[Message] = field(default_factory=list)
    """Done now or before: to be acknowledged. Those whose work raised Refused are among them."""
    later: list[Message] = field(default_factory=list)
    """Another consumer has them: not to be acknowledged, so that they are delivered again."""
    failed: list[tuple[Message, Exception]] = field(default_factory=list)
    """Their work failed and has no effects: to be delivered again, or set aside after some deliveries."""
    rejected: list[tuple[Message, str]] = field(default_factory=list)
    """Their ids can be no keys, or belong to other requests; with the outcome's word: to be set aside."""


class _Failed(Exception):
    """Some messages of the batch failed, and the others have to go without them."""


def consume(
    db: Connection[Any],
    scope: str,
    operation: str,
    messages: Sequence[Message],
    work: Callable[[Connection[Any], Message], None],
    *,
    id_of: Callable[[Message], str | None],
    status: int = 204,
    wait_ms: int = 0,
) -> Result[Message]:
    """Has `work(db, message)` executed at most once for each id, at most 1,000 of them in one transaction.

    A message that fails does not keep the others: since a claim cannot be given back while others commit, the
    transaction is rolled back and made again without it. A lost connection, 40001 and 40P01 are of the whole batch.
    """
    by_id: dict[str | None, list[Message]] = {}
    for message in messages:
        by_id.setdefault(id_of(message), []).append(message)
    failed: dict[Hashable, Exception] = {}
    again = 0
    while True:
        ids = [identity for identity in by_id if identity not in failed]
        try:
            with _rolled_back(db):
                outcomes = _transaction(db, (scope, operation, ids, wait_ms), by_id, work, status, failed)
            return _result(by_id, outcomes, failed)
        except _Failed:
            continue
        except Exception as error:
            again += 1
            if again == ATTEMPTS or not is_again(error):
                raise


def _transaction(
    db: Connection[Any],
    claim: tuple[str, str, list[str | None], int],
    by_id: dict[str | None, list[Message]],
    work: Callable[[Connection[Any], Message], None],
    status: int,
    failed: dict[Hashable, Exception],
) -> dict[str | None, str]:
    """The outcome of each id. Everything is rolled back where some of them fail, and those are added to `failed`."""
    ids, outcomes, settled, before = claim[2], {}, [], len(failed)
    with db.pipeline():
        if db.autocommit:
            db.execute("BEGIN")
        claims = db.cursor(row_factory=tuple_row).execute(CLAIM, claim)
    for ordinal, outcome, token in claims.fetchall():
        identity = ids[ordinal - 1]
        outcomes[identity] = outcome
        if outcome in ("claimed", "bypassed"):
            try:
                final = _work(db, by_id[identity][0], work, status)
            except Exception as error:
                if db.closed or is_again(error):
                    raise
                failed[identity] = error
                continue
            if outcome == "claimed":
                settled.append((token, final))
    if len(failed) > before:
        raise _Failed
    with db.pipeline():
        db.execute(COMPLETE, ([token for token, _ in settled], [final for _, final in settled]))
        db.execute("COMMIT")
    return outcomes


def _work(db: Connection[Any], message: Message, work: Callable[[Connection[Any], Message], None], status: int) -> int:
    """In a savepoint; the status to record."""
    try:
        with db.transaction():
            work(db, message)
        return status
    except Refused as refused:
        return refused.answer.status


def _result(
    by_id: dict[str | None, list[Message]], outcomes: dict[str | None, str], failed: dict[Hashable, Exception]
) -> Result[Message]:
    result: Result[Message] = Result()
    for identity, same in by_id.items():
        outcome = outcomes.get(identity)
        if identity in failed:
            result.failed += [(message, failed[identity]) for message in same]
        elif outcome in ("claimed", "bypassed", "replayed", "withheld", "deleted"):
            result.done += same
        elif outcome == "in_progress":
            result.later += same
        else:
            result.rejected += [(message, str(outcome)) for message in same]
    return result
