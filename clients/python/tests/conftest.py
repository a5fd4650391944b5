"""A database of its own on the server at DATABASE_URL, a proxy that counts round trips, and services over HTTP."""

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

SCHEMA = """
CREATE EXTENSION pg_idempotency;
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text NOT NULL, item text NOT NULL);
CREATE TABLE stock (item text PRIMARY KEY, pieces integer NOT NULL CHECK (pieces >= 0));
CREATE TABLE mails (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL);
"""


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    server = urlsplit(os.environ["DATABASE_URL"])
    name = f"clients_{uuid.uuid4().hex}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        url = urlunsplit(server._replace(path="/" + name))
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(SCHEMA)
        yield url
        db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as db:
        yield db


@pytest.fixture
def user(admin: psycopg.Connection) -> str:
    """A user of the test's own, and an item of the same name, of which there are ten."""
    name = f"user-{uuid.uuid4().hex[:12]}"
    admin.execute("INSERT INTO stock VALUES (%s, 10)", (name,))
    return name


@pytest.fixture
def orders(admin: psycopg.Connection, user: str) -> Callable[[], tuple[int, int]]:
    """How many orders and how many records the user has."""

    def count() -> tuple[int, int]:
        made = admin.execute("SELECT count(*) FROM orders WHERE owner = %s", (user,)).fetchone()[0]
        kept = admin.execute("SELECT count(*) FROM idempotency.records WHERE scope = %s", (user,)).fetchone()[0]
        return made, kept

    return count


class Proxy:
    """Passes a connection on to the server and counts its round trips: what a client sends behind what a server said."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.server = (parts.hostname, parts.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
        self.trips = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.server)
            said = threading.Event()  # the server has spoken since the client last did
            said.set()
            threading.Thread(target=self._pass_on, args=(client, server, said, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, said, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, said: threading.Event, is_client: bool) -> None:
        try:
            while data := source.recv(65536):
                if not is_client:
                    said.set()
                elif said.is_set():
                    said.clear()
                    self.trips += 1
                target.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, target):
                with contextlib.suppress(OSError):  # close alone does not wake the other thread, nor tell the other side
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def count(self, call: Callable[[], object]) -> int:
        self.trips = 0
        call()
        return self.trips


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.listener.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The line that tools/test counts by."""
    count = {word: len(terminalreporter.stats.get(word, ())) for word in ("passed", "failed", "error")}
    failed = count["failed"] + count["error"]
    word = "FAILED" if failed else "ok"
    terminalreporter.write_line(f"test result: {word}. {count['passed']} passed; {failed} failed")
