"""The durable, ordered log of events. Each commit is one block, and each block is columnar.

    contract      what the rest may expect of a journal, and the roles in which it is opened: owner, follower, tools
    open_journal  a journal by its URL, in this module
    errors        what can go wrong
    committer     group commit in a thread
    span_reader   ranges of positions over mapped extents: what all followers share
    shared_extents  the same extents, mapped by another process that a follower has told where they are
    backup        a copy of a journal that others write, and putting it back
    transfer      copying a journal to another place: a folder, a database
    format/       one commit in bytes and back, single messages out of blocks, the names of the queues
    files/        the journal in a folder
    postgresql/   the journal in a PostgreSQL; needs psycopg, so it is imported when it is asked for
    memory        the journal in memory, which is that of ``files`` without a disk
    passwords     kept out of what people see
    unbounded_space  room where no bound is known, for those two
    views/        what is read as Arrow batches; needs pyarrow, so it is not imported here
    repair/       every byte looked at, and what to do about damage

A batch's way in: `Committer` → `Log.append` → `encoding.encode` → `SegmentWriter` → `Disk`. A block's way out:
`Disk` → `read_blocks` → `block.parse` → `Block`, whose columns are views of the bytes that were read. docs/journal.md
has the format, byte by byte.
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
    """Whether a journal is named by a URL, and not by the path of a folder."""
    return _URL.fullmatch(text) is not None


def check_url(url: str) -> None:
    """Raise JournalRefused for the URL of a database that is none. Nothing is opened, and no driver needed."""
    parse_address(url)


def forget_known(folder: str) -> str | None:
    """Have the broker with this data folder, which must not run, forget which shared journal it knows.

    Returns the identity of that, None if it knew none. Raises OSError.
    """
    from penstock.journal.postgresql.seen import forget  # noqa: PLC0415  # few need it

    known = forget(folder)
    return f"{known[0]:016x}" if known is not None else None


def open_journal(url: str, options: OwnerOptions | None = None) -> Journal:
    """The journal at a URL: ``file:PATH`` or a bare path, ``postgresql://…``, or ``memory:``.

    Nothing is touched before a role is taken. ``options`` are for its owner. Raises JournalRefused for a URL that names
    no journal.
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
        f"{shown!r} is no journal: it is file:PATH or the path of a folder, postgresql://HOST/DATABASE, or memory:"
        f" (./{shown} is a path in any case)"
    )
