"""What a server must promise before a journal is kept there, and what its operator should know."""

from __future__ import annotations

from penstock.journal.postgresql.database import ConnectionLost, DatabaseRefused, ServerFacts

#: PostgreSQL 14.
OLDEST = 140000
#: Settings without which a commit may be gone, or a table be unreadable, after the server's machine has failed.
_NEEDED = ("fsync", "full_page_writes")
#: A commit with this one does not wait for any standby.
_LOCAL = "local"


def check_server(where: str, facts: ServerFacts) -> None:
    """Raise ConnectionLost while a server can't keep what it confirms, DatabaseRefused if it is too old for ever."""
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
    """What is allowed, and should be known."""
    names, commits = facts.synchronous_standby_names, facts.synchronous_commit
    if not names:
        return [f"{where} has no synchronous standby: one machine is one copy (see synchronous_standby_names)"]
    if commits == _LOCAL:
        return [f"{where} has synchronous_commit = local: commits do not wait for its standby, which may lack some"]
    if facts.synchronous_standbys == 0:
        return [f"{where} waits for a synchronous standby ({names}), and none is connected: commits wait until one is"]
    return []
