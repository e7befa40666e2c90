"""The durable, ordered log of events. Each commit is one block, and each block is columnar.

    contract      the interface of a journal, and the roles in which it is opened: owner, follower, standby, tools
    open_journal  a journal by its URL, in this module
    errors        its exceptions
    committer     group commit in a thread
    span_reader   ranges of positions in mapped extents: the base of all followers
    shared_extents  the same extents, mapped by another process of this machine
    backup        copies of a journal in use, and restoring them
    transfer      copying a journal to another place: a folder, a database
    format/       one commit in bytes and back, single messages in blocks, the names of queues
    files/        the journal in a folder
    postgresql/   the journal in PostgreSQL; needs psycopg, so it is imported on demand
    memory        the journal in memory: that of ``files`` without a disk
    passwords     hides passwords in URLs
    unbounded_space  free space where no bound is known: in memory, in a database
    views/        blocks as Arrow batches; needs pyarrow, so it is not imported here
    repair/       checks every byte, and repairs damage

Writing: `Committer` → `Log.append` → `encoding.encode` → `SegmentWriter` → `Disk`. Reading: `Disk` → `read_blocks` →
`block.parse` → `Block`, whose columns are views of the bytes that were read. docs/journal.md has the format.
"""

from __future__ import annotations

import re

from penstock.journal.contract import Follower, Journal, JournalTools, OwnedJournal, OwnerOptions
from penstock.journal.errors import JournalRefused
from penstock.journal.files.journal import FileJournal
from penstock.journal.memory import MemoryJournal
from penstock.journal.passwords import without_passwords
from penstock.journal.postgresql.address import parse_address

__all__ = [
    "Follower",
    "Journal",
    "JournalTools",
    "OwnedJournal",
    "OwnerOptions",
    "check_url",
    "forget_known",
    "is_url",
    "open_journal",
]

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)


def is_url(text: str) -> bool:
    """Whether a journal is given as a URL rather than as the path of a folder."""
    return _URL.fullmatch(text) is not None


def check_url(url: str) -> None:
    """Raise JournalRefused for an invalid URL of a database. Nothing is opened, and no driver is needed."""
    parse_address(url)


def forget_known(folder: str) -> str | None:
    """Make the broker with this data folder, which must not run, forget the last commit that it knows of.

    Returns the identity of that journal, None if it knew none. Raises OSError.
    """
    from penstock.journal.postgresql.known_commits import forget  # noqa: PLC0415  # few need it

    known = forget(folder)
    return f"{known[0]:016x}" if known is not None else None


def open_journal(url: str, options: OwnerOptions | None = None) -> Journal:
    """The journal at a URL: ``file:PATH`` or a bare path, ``postgresql://…``, or ``memory:``.

    Nothing is touched before it is opened in a role. ``options`` are for its owner. Raises JournalRefused for an
    invalid URL.
    """
    matched = _URL.fullmatch(url)
    scheme, rest = matched.groups() if matched is not None else ("file", url)
    if scheme == "memory":
        return MemoryJournal(rest, options)
    if scheme == "file" and rest:
        return FileJournal(rest, options)
    if scheme in ("postgresql", "postgres"):
        from penstock.journal.postgresql.journal import PostgresJournal  # noqa: PLC0415  # few need it

        return PostgresJournal(url, options)
    shown = without_passwords(url)
    raise JournalRefused(
        f"{shown!r} is not a journal: it is file:PATH or the path of a folder, postgresql://HOST/DATABASE, or memory:"
        f" (./{shown} is a path in any case)"
    )
