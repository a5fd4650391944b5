"""What all drivers and frameworks share: the calls, their rows, and the loop around a transaction."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Db = TypeVar("Db")
Db_co = TypeVar("Db_co", covariant=True)
Headers = Mapping[str, "str | Sequence[str]"]

# Serialization failure, deadlock: the whole transaction is made again.
AGAIN = ("40001", "40P01")
ATTEMPTS = 3
# COMMIT was refused: a claim was not completed.
UNSETTLED = "IK003"


@dataclass(frozen=True)
class Request:
    """What names a request. `key`, `path` and `body` are as they came: the header a character for each byte, the path
    with its escapes, the body as bytes. Without a `method` there is no fingerprint, or the one that is given."""

    scope: str | None
    operation: str
    key: str | None
    method: str | None = None
    path: str | None = None
    body: bytes = b""
    fingerprint: bytes | None = None
    wait_ms: int | None = None


@dataclass(frozen=True)
class Answer:
    """What to send. `outcome` is the extension's word; an answer of your own needs none."""

    status: int
    body: bytes | None = None
    headers: Headers = field(default_factory=dict)
    resource: tuple[str, str] | None = None
    withhold: str | None = None
    outcome: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether its effects were committed now, so that what follows them (mails, tasks) may be done."""
        return self.outcome in ("completed", "bypassed")

    def header_lines(self) -> Iterable[tuple[str, str]]:
        for name, value in self.headers.items():
            for line in [value] if isinstance(value, str) else value:
                yield name, line


class Refused(Exception):
    """Raised by the work: this answer is final, and the effects of the work are undone."""

    def __init__(self, status: int, body: bytes | None = None, headers: Headers | None = None) -> None:
        super().__init__(status, body)
        self.answer = Answer(status, body, headers or {})


class Unit(Protocol[Db_co]):
    """One transaction on one connection, which `claim` begins and `complete` or `end` ends."""

    @property
    def db(self) -> Db_co: ...
    def claim(self, request: Request) -> Answer | None: ...
    def undo(self) -> None: ...
    def complete(self, answer: Answer) -> Answer: ...


class AsyncUnit(Protocol[Db_co]):
    @property
    def db(self) -> Db_co: ...
    async def claim(self, request: Request) -> Answer | None: ...
    async def undo(self) -> None: ...
    async def complete(self, answer: Answer) -> Answer: ...


Units = Callable[[], AbstractContextManager[Unit[Db]]]
AsyncUnits = Callable[[], AbstractAsyncContextManager[AsyncUnit[Db]]]


def run(units: Units[Db], request: Request, work: Callable[[Db], Answer]) -> Answer:
    """Has `work` executed at most once and returns what to send. It was committed before this returns."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with units() as unit:
                return unit.claim(request) or _execute(unit, work)
        except Exception as error:
            if attempt == ATTEMPTS or not is_again(error):
                raise
    raise AssertionError("unreachable")


def _execute(unit: Unit[Db], work: Callable[[Db], Answer]) -> Answer:
    try:
        answer = work(unit.db)
    except Refused as refused:
        unit.undo()
        answer = refused.answer
    return unit.complete(answer)


async def run_async(units: AsyncUnits[Db], request: Request, work: Callable[[Db], Awaitable[Answer]]) -> Answer:
    """As `run`."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            async with units() as unit:
                return await unit.claim(request) or await _execute_async(unit, work)
        except Exception as error:
            if attempt == ATTEMPTS or not is_again(error):
                raise
    raise AssertionError("unreachable")


async def _execute_async(unit: AsyncUnit[Db], work: Callable[[Db], Awaitable[Answer]]) -> Answer:
    try:
        answer = await work(unit.db)
    except Refused as refused:
        await unit.undo()
        answer = refused.answer
    return await unit.complete(answer)


# --- the calls, with parameters in the notation that `parameter(number, type)` makes

COLUMNS = "outcome, status, headers::text, body, resource_type, resource_id"


def claim_sql(request: Request, parameter: Callable[[str, str], str]) -> str:
    fingerprint = parameter("fingerprint", "bytea")
    if request.method is not None:
        method, path, body = parameter("method", "text"), parameter("path", "text"), parameter("body", "bytea")
        fingerprint = f"idempotency_fingerprint({method}, {path}, body_bytes => {body})"
    names = ", ".join(parameter(name, "text") for name in ("scope", "operation", "key"))
    wait = parameter("wait_ms", "integer")
    return f"SELECT {COLUMNS} FROM idempotency_claim({names}, {fingerprint}, wait_ms => {wait})"


def claim_values(request: Request) -> dict[str, Any]:
    values = {"scope": request.scope, "operation": request.operation, "key": request.key, "wait_ms": request.wait_ms}
    if request.method is None:
        return {**values, "fingerprint": request.fingerprint}
    return {**values, "method": request.method, "path": request.path, "body": request.body}


def complete_sql(parameter: Callable[[str, str], str]) -> str:
    given = {"body_bytes": "bytea", "headers": "jsonb", "resource_type": "text", "resource_id": "text", "withhold": "text"}
    arguments = ", ".join(f"{name} => {parameter(name, kind)}" for name, kind in given.items())
    return f"SELECT {COLUMNS} FROM idempotency_complete({parameter('status', 'integer')}, {arguments})"


def complete_values(answer: Answer) -> dict[str, Any]:
    kind, identity = answer.resource or (None, None)
    return {
        "status": answer.status,
        "body_bytes": answer.body,
        "headers": json.dumps({name: v if isinstance(v, str) else list(v) for name, v in answer.headers.items()}),
        "resource_type": kind,
        "resource_id": identity,
        "withhold": answer.withhold,
    }


def answer_of(row: Sequence[Any]) -> Answer:
    """A row of COLUMNS that has a status."""
    outcome, status, headers, body, kind, identity = row
    resource = None if kind is None else (kind, identity)
    return Answer(status, None if body is None else bytes(body), json.loads(headers or "{}"), resource, None, outcome)


def refusal_of(row: Sequence[Any]) -> Answer | None:
    """What a claim answers, or None where the work is to be done."""
    return None if row[0] in ("claimed", "bypassed") else answer_of(row)


# --- errors and headers


def sqlstate(error: BaseException | None) -> str | None:
    """Of a driver's error, or of one that an ORM has wrapped around it."""
    seen = 0
    while error is not None and seen < 8:
        for found in (error, getattr(error, "orig", None)):
            state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
            if isinstance(state, str):
                return state
        error, seen = error.__cause__, seen + 1
    return None


def is_again(error: BaseException) -> bool:
    return sqlstate(error) in AGAIN


def one_header(lines: Sequence[str]) -> str | None:
    """Several lines are one value with commas, as HTTP joins them, and the extension refuses that as a key."""
    return ", ".join(lines) if lines else None


def headers_of(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Header lines as complete takes them: by name, in order."""
    headers: dict[str, list[str]] = {}
    for name, value in lines:
        headers.setdefault(name, []).append(value)
    return headers
