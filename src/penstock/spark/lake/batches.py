"""A pipeline's record of its batches, and how files get into a folder once, whatever is killed when.

The pipeline's own files are in ``_penstock/NAME``, beside the tables and hidden from readers:

    checkpoint/         Spark's own
    staging/            files being written; each attempt has a folder of its own, so that a task that outlives its
                        driver writes to an abandoned one
    ledger.json         the last batch: *decided* (its files and where they belong), then *done*
    lock                held while a pipeline runs

A batch is written to ``staging``, synced, and decided by one rename of the ledger. From then on its files are only
moved into place, by renames that can be repeated. A batch that is repeated after it was decided is not written again,
even if its files were compacted meanwhile; an undecided one has left nothing behind but staging.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.spark.lake.disk import LakeError, remove, sync, write_whole
from penstock.spark.lake.store import Store

HIDDEN = "_penstock"


class BatchMark(msgspec.Struct, frozen=True):
    """The record of a batch, in the ledger and in its sink. Moves are of files within the store."""

    query: str
    batch: int
    moves: list[tuple[str, str]]
    #: The source's position at which the next batch starts.
    position: int
    done: bool
    #: The pipeline's own state.
    state: dict[str, Any]


class Lake:
    """The folder of one pipeline's own files. Its tables are in the same folder, or in another ``store``."""

    def __init__(self, folder: str | Path, name: str, store: Store | None = None) -> None:
        if "://" in str(folder) and not str(folder).startswith("file://"):
            raise LakeError(f"{folder}: a lake is a folder that renames files at once, on a local or mounted disk")
        self.root = Path(str(folder).removeprefix("file://")).absolute()
        self.name = name
        self.hidden = self.root / HIDDEN / name
        self.staging = self.hidden / "staging"
        self.checkpoint = self.hidden / "checkpoint"
        self._ledger = self.hidden / "ledger.json"
        self.store = store or Store(self.root)

    def prepare(self) -> None:
        """Create the folders, finish the batch that was decided, and remove files of undecided ones."""
        try:
            self.staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LakeError(f"the lake {self.root} can't be written to: {error.strerror}") from None
        try:
            self.finish()
            self._clear()
        except OSError as error:
            raise LakeError(f"leftovers of an earlier run in {self.store.uri()} can't be cleaned up: {error}") from None

    def _clear(self) -> None:
        """Remove staged files that are no longer needed."""
        remove(self.staging)
        self.store.remove(self.staged())
        self.staging.mkdir(parents=True, exist_ok=True)

    def staged(self, attempt: str = "") -> str:
        """The store's folder for an attempt's staged files."""
        return "/".join([HIDDEN, self.name, "staging", *([attempt] if attempt else [])])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the lake for this pipeline. A killed process holds no lock."""
        self.hidden.mkdir(parents=True, exist_ok=True)
        with (self.hidden / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                text = f"another `{self.name}` is running on the lake {self.root}: stop it, or choose another folder"
                raise LakeError(text) from None
            yield

    def last(self) -> BatchMark | None:
        """The last batch that was decided."""
        try:
            return msgspec.json.decode(self._ledger.read_bytes(), type=BatchMark)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise LakeError(f"{self._ledger} can't be understood ({error}): restore it, or empty the lake") from None

    def refuse_unknown(self, table: str, folders: Iterable[Path]) -> None:
        """Raise if the table has files but its last batch is unknown: everything in it would be archived again."""
        if self.last() is None and any(any(folder.rglob("*.parquet")) for folder in folders):
            text = f"exists, but the record of its batches is missing ({self.hidden} is not complete)"
            raise LakeError(f"table {table} {text}: restore that, remove the table, or choose another")

    def query(self) -> str:
        """The query that the checkpoint belongs to; empty if there is none yet."""
        try:
            metadata = json.loads((self.checkpoint / "metadata").read_text())
        except (FileNotFoundError, ValueError):
            return ""
        return str(metadata["id"])

    def resume_at(self) -> int | None:
        """Where to start if the checkpoint is gone but the lake is not: after its last batch. None: as usual."""
        last = self.last()
        return None if last is None or self.query() == last.query else last.position

    def begin(self, batch: int) -> Path | None:
        """A folder to stage a batch in; None if it is in the lake already."""
        self.finish()
        last = self.last()
        if last is not None and last.query == self.query() and batch <= last.batch:
            return None
        attempt = self.staging / f"{batch:012}-{uuid.uuid4().hex[:8]}"
        attempt.mkdir(parents=True)
        return attempt

    def decide(self, batch: int, moves: Sequence[tuple[Path, Path]], position: int, state: dict[str, Any]) -> None:
        """Decide that the batch belongs in the lake, which nothing can undo. ``moves`` are of single files."""
        for staged, _ in moves:
            sync(staged)
        relative = [(str(staged.relative_to(self.root)), str(to.relative_to(self.root))) for staged, to in moves]
        self.record(BatchMark(self.query(), batch, relative, position, False, state))

    def record(self, mark: BatchMark) -> None:
        """As ``decide``, with files to move that are on disk already, or for a batch that was committed to tables."""
        self._write(mark)
        self.finish()

    def finish(self) -> None:
        """Move decided files into place."""
        last = self.last()
        if last is None or last.done:
            return
        for staged, to in last.moves:
            self.store.move(staged, to)
        self._write(msgspec.structs.replace(last, moves=[], done=True))
        self._clear()

    def _write(self, mark: BatchMark) -> None:
        write_whole(self._ledger, msgspec.json.encode(mark))
