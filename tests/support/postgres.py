"""A real PostgreSQL for tests: one server for a whole run, a fresh database for each test, and pairs with a standby.

Fixtures (``conftest.py``): ``database`` is the URL of an empty database that is gone after the test; ``postgres`` is
the server. A test that kills or promotes makes a pair of its own with :func:`running_pair`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.demo.postgresql import Pair, Server

_numbers = itertools.count(1)


@contextmanager
def database_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pnpg", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server with settings of its own."""
    with database_folder() as folder:
        server = Server(folder / "server", settings)
        try:
            server.create()
            server.start()
            yield server
        finally:
            server.remove()


@contextmanager
def running_pair(settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """A primary and a synchronous standby."""
    with database_folder() as folder:
        pair = Pair(folder / "pair", settings)
        try:
            pair.start()
            yield pair
        finally:
            pair.remove()


@contextmanager
def fresh_database(server: Server) -> Iterator[str]:
    """The URL of an empty database, which is dropped afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    server.execute(f"create database {name} template template0")
    try:
        yield server.url(name)
    finally:
        server.execute(f"drop database if exists {name} with (force)")


def fresh_schema(server: Server) -> str:
    """The URL of a new journal in its own schema, which is cheaper than a database and is not removed."""
    url = server.url()
    return f"{url}{'&' if '?' in url else '?'}schema=test_{os.getpid()}_{next(_numbers)}"
