"""The session settings that the journal's promises depend on.

Roles, databases and the server have defaults for them, which may change at any time. So every connection sets them and
checks the result. Behind a pooler that gives each transaction any free server session, every transaction begins with
that: see ``server_session``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: How long a statement waits for a lock before it fails, and is retried and logged. A commit that waits for a
#: synchronous standby holds locks, even when its client is gone.
LOCK_TIMEOUT = "5s"
#: PostgreSQL 17.
_17 = 170000


class Setting(NamedTuple):
    """A setting of every session."""

    name: str
    #: In the form of ``SHOW``.
    value: str
    #: The oldest server with this setting, as in ``server_version_num``.
    since: int = 0


def _fixed() -> tuple[Setting, ...]:
    return (
        # A warning is the only sign that a commit's wait for the synchronous standby was cut short.
        Setting("client_min_messages", "warning"),
        # An error must leave the session as it was: some are expected.
        Setting("exit_on_error", "off"),
        # A commit may take any time, and a connection may be idle between two.
        Setting("statement_timeout", "0"),
        Setting("transaction_timeout", "0", since=_17),
        Setting("idle_session_timeout", "0"),
        # A client that is stopped within a transaction of several statements must not block others.
        Setting("idle_in_transaction_session_timeout", "1min"),
        Setting("lock_timeout", LOCK_TIMEOUT),
        # Of two owners that move the head, one must find its row changed, not get an error.
        Setting("default_transaction_isolation", "read committed"),
        # Names have PostgreSQL's meaning. Our statements name the schema.
        Setting("search_path", "pg_catalog, pg_temp"),
        # An error, if a policy would hide rows.
        Setting("row_security", "off"),
        Setting("standard_conforming_strings", "on"),
    )


#: The operator chooses what a commit waits for, except nothing: confirmed messages must survive the server.
_COMMIT = "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')"
#: A server that waits for the rest of a message from a dead machine holds locks until it notices. These settings only
#: exist for TCP connections, so the result is not checked.
_TCP = {
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5000",
}


class Found(NamedTuple):
    """The settings of a session, as it reports them."""

    #: The ID of the server's process.
    process: int
    #: It accepts no changes, by its role's default or because the server is a standby.
    read_only: bool
    #: ``synchronous_commit``.
    commit: str
    #: The settings that differ from the requested ones, as "name = value".
    differing: list[str]


class SessionSettings:
    """The statements that set up the sessions of one server."""

    def __init__(self, version: int) -> None:
        self._settings = [setting for setting in _fixed() if version >= setting.since]
        others = "".join(f", set_config('{name}', '{value}', false)" for name, value in _TCP.items())
        #: For a session that is ours for its lifetime.
        self.lasting = self._statement("false", _COMMIT, others)
        #: For one transaction in a shared session.
        self.passing = self._statement("true", _COMMIT, "")

    def keep_commit(self, found: Found) -> None:
        """Let commits wait for the same as those of this session, even if the role's setting changes."""
        self.passing = self._statement("true", f"'{found.commit}'", "")

    def _statement(self, local: str, commit: str, others: str) -> bytes:
        wanted = [f"set_config('{setting.name}', '{setting.value}', {local})" for setting in self._settings]
        first = "pg_backend_pid(), current_setting('transaction_read_only')"
        commits = f"set_config('synchronous_commit', {commit}, {local})"
        return f"select {first}, {commits}, {', '.join(wanted)}{others}".encode()

    def found(self, row: tuple[Any, ...]) -> Found:
        """Read the row that one of the statements returned."""
        process, read_only, commit, *values = row
        pairs = zip(self._settings, values, strict=False)
        differing = [f"{setting.name} = {value}" for setting, value in pairs if value != setting.value]
        return Found(process, read_only == "on", commit, differing)
