"""The settings of a session, without which the database would not do what the journal promises.

A role, a database and the server each have defaults of their own for them, which may change at any time. So every
connection sets what matters and looks at what became of it. Where a pooler hands each transaction to whichever server
session is free, that is done at the beginning of every transaction; see ``connection``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: For how long a statement waits for a lock, before it is tried again and the operator hears of it. A commit that waits
#: for a synchronous standby holds locks, also when its client is gone.
LOCK_TIMEOUT = "5s"
#: PostgreSQL 17.
_17 = 170000


class Setting(NamedTuple):
    """One that every session has."""

    name: str
    #: As ``SHOW`` has it.
    value: str
    #: The oldest server that has it, as in ``server_version_num``.
    since: int = 0


def _fixed() -> tuple[Setting, ...]:
    return (
        # The one sign of a commit whose wait for the synchronous standby was cut short is a warning.
        Setting("client_min_messages", "warning"),
        # An error must leave the session as it was: some are expected.
        Setting("exit_on_error", "off"),
        # A commit takes as long as it takes, and a connection may be idle between two.
        Setting("statement_timeout", "0"),
        Setting("transaction_timeout", "0", since=_17),
        Setting("idle_session_timeout", "0"),
        # Nobody is kept waiting by who is stopped within a transaction that takes several statements.
        Setting("idle_in_transaction_session_timeout", "1min"),
        Setting("lock_timeout", LOCK_TIMEOUT),
        # Two who move the head find out by its row, not by an error.
        Setting("default_transaction_isolation", "read committed"),
        # Names mean what they mean in PostgreSQL. Ours name their schema.
        Setting("search_path", "pg_catalog, pg_temp"),
        # An error instead of rows that a policy leaves out.
        Setting("row_security", "off"),
        Setting("standard_conforming_strings", "on"),
    )


#: What a commit waits for is the operator's choice, but never nothing: what is confirmed must survive the server.
_COMMIT = "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')"
#: A server that waits for the rest of a message from a machine that is gone holds locks until it finds that out.
#: Only the server's end of a TCP connection has them, so nothing is made of what becomes of them.
_TCP = {
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5000",
}


class Found(NamedTuple):
    """What a session says after it was set."""

    #: The server's process.
    process: int
    #: It takes no changes: the default of its role, or it is a standby's.
    read_only: bool
    #: ``synchronous_commit``.
    commit: str
    #: What is not as it was set: "name = value".
    differing: list[str]


class SessionSettings:
    """What is set on the sessions of one server."""

    def __init__(self, version: int) -> None:
        self._settings = [setting for setting in _fixed() if version >= setting.since]
        others = "".join(f", set_config('{name}', '{value}', false)" for name, value in _TCP.items())
        #: For a session that is ours as long as it lasts.
        self.lasting = self._statement("false", _COMMIT, others)
        #: For a transaction, in a session that others have before and after it.
        self.passing = self._statement("true", _COMMIT, "")

    def keep_commit(self, found: Found) -> None:
        """Let commits wait for the same as those of this session, whatever the role's setting becomes meanwhile."""
        self.passing = self._statement("true", f"'{found.commit}'", "")

    def _statement(self, local: str, commit: str, others: str) -> bytes:
        wanted = [f"set_config('{setting.name}', '{setting.value}', {local})" for setting in self._settings]
        first = "pg_backend_pid(), current_setting('transaction_read_only')"
        commits = f"set_config('synchronous_commit', {commit}, {local})"
        return f"select {first}, {commits}, {', '.join(wanted)}{others}".encode()

    def found(self, row: tuple[Any, ...]) -> Found:
        """The row that one of the statements returned."""
        process, read_only, commit, *values = row
        pairs = zip(self._settings, values, strict=False)
        differing = [f"{setting.name} = {value}" for setting, value in pairs if value != setting.value]
        return Found(process, read_only == "on", commit, differing)
