"""A real PgBouncer in transaction mode for tests of journals behind a pooler.

``PGBOUNCER=/path`` names one; otherwise the one on the PATH is used, or Debian's. Without any, tests fail and say how
to install one. ``python -m support.pgbouncer`` installs Debian's, for root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.demo.postgresql import Server
from support import debian
from support.brokers import wait_for
from support.postgres import database_folder

HOW = "install one (Debian: apt-get install pgbouncer), or name one: PGBOUNCER=/path/to/pgbouncer"
#: Number of ports to try, because another process may take the one that was free a moment ago.
TRIES = 5


def named() -> str | None:
    """The program from ``PGBOUNCER``, the PATH, or Debian's folder, which is only on root's PATH."""
    return os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def program() -> str:
    """The program. Fails without one, because a skipped test proves nothing."""
    path = named()
    if path is None:
        pytest.fail(f"the tests of journals behind a pooler need a PgBouncer: {HOW}", pytrace=False)
    return path


class Pooler:
    """A PgBouncer in front of a server."""

    def __init__(self, server: Server, folder: Path, users: dict[str, str], settings: dict[str, Any]) -> None:
        self._server = server
        self._users = {"penstock": server.password, **users}
        self._folder = folder
        self._settings = settings
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on a port of its own."""
        for _ in range(TRIES):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = int(free.getsockname()[1])
            self._write()
            command = [program(), "-q", str(self._folder / "ini")]
            with (self._folder / "log").open("wb") as log:  # it refuses to run as root
                self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._server._as_user())
            process = self._process
            wait_for(lambda process=process: process.poll() is not None or self._listens())  # type: ignore[misc]
            if self._process.poll() is None:
                return
        raise AssertionError((self._folder / "log").read_text())

    def stop(self) -> None:
        """Kill it, because weaker signals may be ignored, as SIGQUIT is below a background script."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def configure(self, **settings: Any) -> None:
        """Change settings that it can reload while it runs."""
        self._settings |= settings
        self._write()
        self.admin("reload")

    def admin(self, command: str) -> None:
        """A command for its console: pause, resume, kill, …"""
        with psycopg.connect(self._url("pgbouncer"), autocommit=True) as console:
            console.execute(command.encode())

    def url(self, url: str) -> str:
        """The URL of a journal of the server, through the pooler."""
        parts = urlsplit(url)
        return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}").geturl()

    def _url(self, database: str) -> str:
        return self.url(self._server.url(database))

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _write(self) -> None:
        users = self._folder / "users"
        users.write_text("".join(f'"{name}" "{password}"\n' for name, password in self._users.items()))
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": users,
            "admin_users": "penstock",
            "pool_mode": "transaction",
            "default_pool_size": 4,
            "server_login_retry": 1,
            **self._settings,
        }
        lines = [f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (self._folder / "ini").write_text("\n".join(lines) + "\n")


@contextmanager
def pgbouncer(server: Server, users: dict[str, str] | None = None, **settings: Any) -> Iterator[Pooler]:
    """Run one in front of a server on 127.0.0.1, for roles with these passwords, with these settings."""
    with database_folder() as folder:
        pooler = Pooler(server, folder, users or {}, settings)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.stop()


def install() -> int:
    """Install PgBouncer if there is none. Returns the exit code."""
    if not named():
        debian.install("pgbouncer", "the tests of journals behind a pooler")
    if not named():
        print(f"set-up: no PgBouncer, so the tests of journals behind a pooler will fail: {HOW}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(install())
