"""Checks that a server can keep a journal, and warns its operator of weak settings."""

from __future__ import annotations

from penstock.journal.postgresql.database import ConnectionLost, DatabaseRefused, ServerFacts

#: PostgreSQL 14.
OLDEST = 140000
#: Settings without which a failure of the server's machine may lose commits or make tables unreadable.
_NEEDED = ("fsync", "full_page_writes")
#: With this setting, commits wait for no standby.
_LOCAL = "local"


def check_server(where: str, facts: ServerFacts) -> None:
    """Raise ConnectionLost while a server may lose confirmed commits, and DatabaseRefused if it is too old."""
    if facts.version < OLDEST:
        found = f"{facts.version // 10000}"
        raise DatabaseRefused(f"{where} is PostgreSQL {found}: this Penstock needs {OLDEST // 10000} or later")
    if facts.read_only:
        raise ConnectionLost(
            f"{where} is read-only: name the primary, or all servers, as in postgresql://HOST,HOST/DATABASE; or set"
            " default_transaction_read_only = off",
            denied=True,
        )
    for name in _NEEDED:
        if getattr(facts, name) == "off":
            raise ConnectionLost(
                f"{where} has {name} = off, and may lose what it has confirmed: set {name} = on",
                denied=True,
            )


def warn_of_server(where: str, facts: ServerFacts) -> list[str]:
    """Warnings about settings that are permitted, but weaken the journal's promises."""
    names, commits = facts.synchronous_standby_names, facts.synchronous_commit
    if not names:
        return [f"{where} has no synchronous standby: one machine is one copy (see synchronous_standby_names)"]
    if commits == _LOCAL:
        return [f"{where} has synchronous_commit = local: commits do not wait for its standby, which may lack some"]
    if facts.synchronous_standbys == 0:
        return [f"{where} waits for a synchronous standby ({names}), and none is connected: commits wait until one is"]
    return []
