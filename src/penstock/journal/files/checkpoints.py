"""Checkpoints in files: the state before a position, so that a start only reads the events after it.

Two are kept, because the newer might become unreadable. So the log must keep the events after the *older* one.
``format.checkpoint`` has the bytes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import override

from penstock.journal.contract import Checkpoint, CheckpointStore, Columns
from penstock.journal.errors import LogFull, is_full
from penstock.journal.files.disk import Disk, Part, ReadableDisk, write_all
from penstock.journal.files.space import DiskSpace
from penstock.journal.format.checkpoint import BadCheckpoint, decode_checkpoint, encode_checkpoint

#: How many are kept.
KEPT = 2

_NAME = re.compile(r"[0-9a-f]{16}\.ckpt")
_TEMPORARY = "checkpoint.new"

T = TypeVar("T")


class CheckpointReader:
    """The checkpoints in a data folder, for reading."""

    def __init__(self, disk: ReadableDisk, identity: int) -> None:
        self._files = disk
        self._identity = identity
        self.report: list[str] = []

    def positions(self) -> list[int]:
        """The positions with a checkpoint, oldest first."""
        return sorted(int(name[:16], 16) for name in self._files.names() if _NAME.fullmatch(name))

    def size(self, position: int) -> int:
        """The bytes of the checkpoint at a position."""
        with contextlib.closing(self._files.open(checkpoint_name(position))) as file:
            return file.size()

    def newest_good(self) -> Checkpoint | None:
        """The newest readable one. Adds skipped ones to ``report``."""
        for position in reversed(self.positions()):
            try:
                return self.read(position)
            except BadCheckpoint as error:
                self.report.append(f"{checkpoint_name(position)} is skipped: {error}")
        return None

    def newest_before(self, stop: int) -> Checkpoint | None:
        """The newest readable one at or before a position, while a broker may replace them."""
        for position in reversed(self.positions()):
            if position <= stop:
                with contextlib.suppress(FileNotFoundError, BadCheckpoint):  # the owner's next start reports it
                    return self.read(position)
        return None

    def read(self, position: int) -> Checkpoint:
        """The one at a position. Raises BadCheckpoint if it is unusable."""
        with contextlib.closing(self._files.open(checkpoint_name(position))) as file:
            return decode_checkpoint(file.read, file.size(), self._identity, position)


class Checkpoints(CheckpointReader, CheckpointStore):
    """The same for the owner of the folder, which holds its lock."""

    def __init__(
        self, disk: Disk, identity: int, space: DiskSpace | None = None, *, may_be_damaged: bool = True
    ) -> None:
        """``space`` provides the reserve.

        Unless files ``may_be_damaged``, the older checkpoint only serves readers that have seen an earlier end of the
        log. It is removed when the newest is written a second time, because nothing has happened since.
        """
        super().__init__(disk, identity)
        self._disk = disk
        self._space = space
        self._may_be_damaged = may_be_damaged

    @override
    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        self.clear()
        kept = KEPT if self._may_be_damaged or position not in self.positions() else 1
        try:
            self._write_new(encode_checkpoint(self._identity, position, meta, columns, clean=clean))
        except (OSError, LogFull) as error:
            with contextlib.suppress(OSError):
                self.clear()  # it must not occupy space that is needed elsewhere
            if isinstance(error, OSError) and is_full(error):
                raise LogFull(f"there is no room for a checkpoint: {error}") from error
            raise
        self._disk.rename(_TEMPORARY, checkpoint_name(position))
        self._disk.sync()
        for old in self.positions()[:-kept]:
            self._disk.unlink(checkpoint_name(old))

    def clear(self) -> None:
        """Remove an unfinished one."""
        if _TEMPORARY in self._disk.names():
            self._disk.unlink(_TEMPORARY)

    def _write_new(self, parts: list[Part]) -> None:
        size = sum(map(len, parts))
        if self._space is not None:
            self._space.check(size)
        with contextlib.closing(self._spend(lambda: self._disk.create(_TEMPORARY), size)) as file:
            self._spend(lambda: write_all(file, parts, 0), size)
            file.sync()

    def _spend(self, write: Callable[[], T], size: int) -> T:
        return write() if self._space is None else self._space.spend(write, size)


def is_checkpoint(name: str) -> bool:
    """Whether a file is a checkpoint, by its name."""
    return _NAME.fullmatch(name) is not None


def checkpoint_name(position: int) -> str:
    """The file name of the checkpoint at a position."""
    return f"{position:016x}.ckpt"
