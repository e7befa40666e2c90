"""What a broker knows as committed, in whichever role and in whichever of its lives it came to know it.

A broker serves, loses the journal, stands by, and is started again. If the database has lost commits meanwhile, who
knew them says so, whatever it is by then. So the journal's roles share this, and it is kept in the broker's own folder,
which a restore of the database does not carry over:

    {"identity": "5f0c…", "extent": 200, "first": 600, "end": 606, "epoch": 4, "checksum": 123}

It is written over after every commit that the broker makes, or sees to be safe (``standby`` has when that is), without
a sync: a kill loses nothing of it, a power failure of the broker's machine the last moments.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.journal.errors import CommitsLost, JournalMissing, JournalRefused
from penstock.journal.postgresql.database import (
    ACCEPTED,
    HELD,
    BlockMark,
    Database,
    DatabaseError,
    ReadableDatabase,
    ShardRow,
)

#: The file in the broker's own folder.
NAME = "journal-known"
#: The file's bytes: more than any note takes, and the same for each, so that one is written over the other.
_SIZE = 256
#: Who owns the journal while commits are lost and nobody has accepted that. No broker has such a name.
OPERATOR = "an operator, who has to decide (penstock journal accept-loss)"


class Known(NamedTuple):
    """A block that was committed: its extent, and what it is told by."""

    extent: int
    mark: BlockMark


class Seen:
    """The last block that was seen to be committed, and of which journal."""

    def __init__(self, folder: str = "") -> None:
        """``folder`` is the broker's own; without one nothing is kept after the process."""
        self.identity: int | None = None
        self.known: Known | None = None
        self._path = os.path.join(folder, NAME) if folder else ""
        self._file: int | None = None

    def load(self) -> None:
        """Read what an earlier process has kept. Raises JournalRefused, or OSError."""
        if not self._path or self._file is not None:
            return
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        note = decoded(os.pread(self._file, _SIZE, 0), self._path)
        if note is not None:
            self.identity, self.known = note

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def meet(self, identity: int, where: str) -> None:
        """Note which journal is there. Raises JournalMissing if another one was."""
        if self.identity is None:
            self.identity = identity
            self._keep()
        if self.identity != identity:
            raise JournalMissing(
                f"{where} has journal {identity:016x}, where this broker knows {self.identity:016x}: restore that one,"
                f" or correct the URL.{self._advice(where)}"
            )

    def missing(self, where: str) -> JournalMissing:
        """What to raise where there are no tables, and should be."""
        assert self.identity is not None
        end = self.known.mark.end if self.known is not None else 1
        return JournalMissing(
            f"{where} has no journal any more, where this broker knows journal {self.identity:016x} up to position"
            f" {end - 1}: restore it, or correct the URL.{self._advice(where)}"
        )

    def _advice(self, where: str) -> str:
        if not self._path:
            return ""
        folder = os.path.dirname(self._path)
        return f" To begin with what is there now: penstock journal accept-loss '{where}' --data {folder}"

    def note(self, extent: int, mark: BlockMark) -> None:
        """A block is committed."""
        if self.known is None or mark.end > self.known.mark.end:
            self.known = Known(extent, mark)
            self._keep()

    def _keep(self) -> None:
        if self._file is not None and self.identity is not None:
            note: dict[str, object] = {"identity": f"{self.identity:016x}"}
            if self.known is not None:
                note |= {"extent": self.known.extent, **self.known.mark._asdict()}
            os.pwrite(self._file, msgspec.json.encode(note).ljust(_SIZE - 1) + b"\n", 0)

    def lost(self, database: Database, shard: ShardRow) -> tuple[int, int] | None:
        """Positions, end excluded, that are not there any more, or that other blocks have now; None: all is well.

        What an operator has accepted is forgotten. Raises DatabaseError.
        """
        lost = missing_range(database, shard, self.known) if self.known is not None else None
        if lost is None:
            return None
        if any(low <= lost[0] and lost[1] <= high for low, high in accepted_losses(database)):
            self.known = None
            self._keep()
            return None
        return lost


def missing_range(database: Database, shard: ShardRow, known: Known) -> tuple[int, int] | None:
    """Positions up to the end of a block that is gone; None: it is there, or was trimmed. Raises DatabaseError."""
    if shard.head < known.mark.end:
        return shard.head, known.mark.end
    first, end = known.mark.first, known.mark.end
    if first < shard.low or database.mark(known.extent, first) == known.mark:
        return None
    before = [row.end for row in database.extents() if row.first <= first]
    if first < database.shard().low:  # trimmed in between
        return None
    return min(max(before, default=first), first), end


def accepted_losses(database: ReadableDatabase) -> list[tuple[int, int]]:
    """The ranges of positions that operators have accepted as lost. Raises DatabaseError."""
    return [(low, high) for low, high in json.loads(database.value(ACCEPTED) or b"[]")]


def lost_commits(where: str, lost: tuple[int, int]) -> CommitsLost:
    """What to raise where a broker knows commits that a database does not have."""
    low, high = lost
    what = f"positions {low} to {high - 1}" if high - low > 1 else f"position {low}"
    return CommitsLost(
        lost,
        f"{where} has lost commits that it had confirmed: {what} at least. It was put back to position {low}: a standby"
        " that is not synchronous was promoted, or an older state restored. Go back to the server that has them; or, to"
        f" go on without them: penstock journal accept-loss '{where}'",
    )


def held(database: Database, lost: tuple[int, int]) -> CommitsLost:
    """What to raise for lost commits; no broker goes on before an operator has decided.

    If the database can't be told of it now, this broker knows it all the same.
    """
    with suppress(DatabaseError):
        database.hold(OPERATOR, msgspec.json.encode({"lost": lost}))
    return lost_commits(database.where, lost)


def held_before(database: ReadableDatabase, shard: ShardRow) -> CommitsLost | None:
    """What to raise if the journal waits for an operator; None: it does not. Raises DatabaseError."""
    if shard.owner != OPERATOR:
        return None
    low, high = json.loads(database.value(HELD) or b"{}").get("lost", (shard.head, shard.head + 1))
    return lost_commits(database.where, (low, high))


def decoded(raw: bytes, path: str) -> tuple[int, Known | None] | None:
    """A note: the journal's identity, and the last block. None: there is none. Raises JournalRefused."""
    if not raw.strip(b"\0\n "):
        return None
    try:
        note = json.loads(raw)
        identity = int(note.pop("identity"), 16)
        return identity, Known(note.pop("extent"), BlockMark(**note)) if note else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise JournalRefused(
            f"{path} can not be read: it should say how far this broker knows the journal. If that is whole, remove the"
            " file"
        ) from None


def forget(folder: str) -> tuple[int, Known | None] | None:
    """Remove what a broker keeps in its folder, which must not run; what it was. Raises OSError."""
    path = Path(folder, NAME)
    try:
        found = decoded(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except JournalRefused:
        found = None
    path.unlink()
    return found
