"""A PostgreSQL role with a database of its own, for tests that lock it out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.demo.postgresql import Server

PASSWORD = "right"
#: Terminates all of the role's connections.
END = "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"


class Role(NamedTuple):
    """A role, and the URL of its journal."""

    server: Server
    name: str
    url: str

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Execute a statement as the server's superuser, in the role's database. ``{role}`` is its name."""
        return self.server.execute(statement.format(role=self.name), self.name)


@contextmanager
def role_of(server: Server, name: str) -> Iterator[Role]:
    """Create a role, and drop it afterwards."""
    server.execute(f"create role {name} login password '{PASSWORD}'")
    server.execute(f"create database {name} owner {name} template template0")
    url = server.url(name).replace(f"//penstock:{server.password}", f"//{name}:{PASSWORD}")
    try:
        yield Role(server, name, f"{url}?schema=penstock")
    finally:
        server.execute(f"drop database {name} with (force)")
        server.execute(f"drop role {name}")
