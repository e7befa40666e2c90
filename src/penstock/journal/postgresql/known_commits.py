"""The last commit that a broker knows of, in any of its roles and across restarts.

A broker serves, loses the journal, stands by, and is started again. If the database has lost commits meanwhile, every
broker that knew of them must say so. So the journal's roles share this object, and it is stored in the broker's own
folder, which a restore of the database does not bring back to an older state:

    {"identity": "5f0c…", "extent": 200, "first": 600, "end": 606, "epoch": 4, "checksum": 123}

The note is overwritten after every commit that the broker makes, or knows to be safe (see ``standby``), without a sync:
it survives a kill, but a power failure of the broker's machine loses its last moments.
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
#: The file's size in bytes. It exceeds any note, and is the same for each, so that one overwrites the other.
_SIZE = 256
#: Owns the journal while commits are lost and no operator has accepted that. No broker has such a name.
OPERATOR = "an operator, who has to decide (penstock journal accept-loss)"


class KnownBlock(NamedTuple):
    """A committed block: its extent, and its identifying numbers."""

    extent: int
    mark: BlockMark


class KnownCommits:
    """The last block that is known to be committed, and the journal that it belongs to."""

    def __init__(self, folder: str = "") -> None:
        """``folder`` is the broker's own; without one nothing survives the process."""
        self.identity: int | None = None
        self.last: KnownBlock | None = None
        self._path = os.path.join(folder, NAME) if folder else ""
        self._file: int | None = None

    def load(self) -> None:
        """Read the note of an earlier process. Raises JournalRefused, or OSError."""
        if not self._path or self._file is not None:
            return
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        note = decode_note(os.pread(self._file, _SIZE, 0), self._path)
        if note is not None:
            self.identity, self.last = note

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def check_identity(self, identity: int, where: str) -> None:
        """Note which journal the database holds. Raises JournalMissing if it held another one before."""
        if self.identity is None:
            self.identity = identity
            self._keep()
        if self.identity != identity:
            raise JournalMissing(
                f"{where} has journal {identity:016x}, where this broker knows {self.identity:016x}: restore that one,"
                f" or correct the URL.{self._advice(where)}"
            )

    def missing_journal(self, where: str) -> JournalMissing:
        """The error for a database that lacks the tables of the known journal."""
        assert self.identity is not None
        end = self.last.mark.end if self.last is not None else 1
        return JournalMissing(
            f"{where} has no journal any more, where this broker knows journal {self.identity:016x} up to position"
            f" {end - 1}: restore it, or correct the URL.{self._advice(where)}"
        )

    def _advice(self, where: str) -> str:
        if not self._path:
            return ""
        folder = os.path.dirname(self._path)
        return f" To continue from the database's current state: penstock journal accept-loss '{where}' --data {folder}"

    def note(self, extent: int, mark: BlockMark) -> None:
        """Note that a block is committed."""
        if self.last is None or mark.end > self.last.mark.end:
            self.last = KnownBlock(extent, mark)
            self._keep()

    def _keep(self) -> None:
        if self._file is not None and self.identity is not None:
            note: dict[str, object] = {"identity": f"{self.identity:016x}"}
            if self.last is not None:
                note |= {"extent": self.last.extent, **self.last.mark._asdict()}
            os.pwrite(self._file, msgspec.json.encode(note).ljust(_SIZE - 1) + b"\n", 0)

    def lost_range(self, database: Database, shard: ShardRow) -> tuple[int, int] | None:
        """Positions, end excluded, that are gone or belong to other blocks now; None: no loss.

        If an operator has accepted the loss, the known block is forgotten. Raises DatabaseError.
        """
        lost = missing_range(database, shard, self.last) if self.last is not None else None
        if lost is None:
            return None
        if any(low <= lost[0] and lost[1] <= high for low, high in accepted_losses(database)):
            self.last = None
            self._keep()
            return None
        return lost


def missing_range(database: Database, shard: ShardRow, known: KnownBlock) -> tuple[int, int] | None:
    """Positions up to the end of a missing block; None: it is there, or was trimmed. Raises DatabaseError."""
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
    """The position ranges that operators have accepted as lost. Raises DatabaseError."""
    return [(low, high) for low, high in json.loads(database.value(ACCEPTED) or b"[]")]


def lost_commits(where: str, lost: tuple[int, int]) -> CommitsLost:
    """The error for a database that lacks commits a broker knows of."""
    low, high = lost
    what = f"positions {low} to {high - 1}" if high - low > 1 else f"position {low}"
    return CommitsLost(
        lost,
        f"{where} has lost commits that it had confirmed: {what} at least. It was put back to position {low}: a standby"
        " that is not synchronous was promoted, or an older state restored. Go back to the server that has them; or, to"
        f" continue without them: penstock journal accept-loss '{where}'",
    )


def hold_for_operator(database: Database, lost: tuple[int, int]) -> CommitsLost:
    """The error for lost commits. Fences off all brokers until an operator decides.

    If the database cannot be reached now, this broker still knows of the loss.
    """
    with suppress(DatabaseError):
        database.hold(OPERATOR, msgspec.json.encode({"lost": lost}))
    return lost_commits(database.where, lost)


def pending_loss(database: ReadableDatabase, shard: ShardRow) -> CommitsLost | None:
    """The error for a journal that waits for an operator; None: it does not. Raises DatabaseError."""
    if shard.owner != OPERATOR:
        return None
    low, high = json.loads(database.value(HELD) or b"{}").get("lost", (shard.head, shard.head + 1))
    return lost_commits(database.where, (low, high))


def decode_note(raw: bytes, path: str) -> tuple[int, KnownBlock | None] | None:
    """A note: the journal's identity, and the last block. None: there is none. Raises JournalRefused."""
    if not raw.strip(b"\0\n "):
        return None
    try:
        note = json.loads(raw)
        identity = int(note.pop("identity"), 16)
        return identity, KnownBlock(note.pop("extent"), BlockMark(**note)) if note else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise JournalRefused(
            f"{path} cannot be read: expected a note of the last block that this broker knows. If the journal is"
            " complete, remove the file"
        ) from None


def forget(folder: str) -> tuple[int, KnownBlock | None] | None:
    """Remove the note in the folder of a broker that is not running, and return it. Raises OSError."""
    path = Path(folder, NAME)
    try:
        found = decode_note(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except JournalRefused:
        found = None
    path.unlink()
    return found
