"""A role of a PostgreSQL with a database of its own, for tests of what others do to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.demo.postgresql import Server

PASSWORD = "right"
#: Ends all of its connections.
END = "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"


class Role(NamedTuple):
    """One, and the way to its journal."""

    server: Server
    name: str
    url: str

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """As the server's operator, in the role's database. ``{role}`` is its name."""
        return self.server.execute(statement.format(role=self.name), self.name)


@contextmanager
def role_of(server: Server, name: str) -> Iterator[Role]:
    """One that is gone afterwards."""
    server.execute(f"create role {name} login password '{PASSWORD}'")
    server.execute(f"create database {name} owner {name} template template0")
    url = server.url(name).replace(f"//penstock:{server.password}", f"//{name}:{PASSWORD}")
    try:
        yield Role(server, name, f"{url}?schema=penstock")
    finally:
        server.execute(f"drop database {name} with (force)")
        server.execute(f"drop role {name}")
