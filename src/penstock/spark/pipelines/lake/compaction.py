"""Many small files of a closed hour become one, and no reader counts a row twice or misses one.

The new files are written in a folder of their own, outside of the table. Then the two folders change places in one step
(``renameat2`` with ``RENAME_EXCHANGE``), so whoever lists the hour sees the old files or the new ones. A query that has
listed the old ones and opens them only later fails, as its files are gone; repeated, it is right. Where a file system
can't exchange folders, the old one is moved away and the new one put in place: in between, for some microseconds, the
hour is empty.

What is about to happen is written down first, so that a crash at any moment is put right by the next start: the folder
that has the new files is the right one.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.lake.batches import Lake, remove, sync, write_whole

#: Hours with files that are on average smaller than this are compacted.
SMALL_FILE = 64 * 2**20
#: And only if there are so many at least.
FEWEST_FILES = 2
#: Rows of a file that are in memory at a time.
ROWS = 65_536
_EXCHANGE = 2
_HERE = -100
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


class Swap(msgspec.Struct, frozen=True):
    """A folder of an hour, and the one that is to take its place. ``files`` are those of the new one."""

    hour: str
    new: str
    files: list[str]


class Compaction:
    """Compacts the closed hours of a lake's tables."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._note = lake.hidden / "compaction.json"
        self._work = lake.hidden / "compacting"

    def recover(self) -> None:
        """Finish what a crash interrupted."""
        if self._note.exists():
            self._finish(msgspec.json.decode(self._note.read_bytes(), type=Swap))
        remove(self._work)

    def run(self, tables: list[Path], before: str) -> int:
        """Compact the hours before this one (as in ``2026-01-31/23``). Returns how many there were."""
        done = 0
        for hour in _hours(tables, before):
            files = sorted(hour.glob("*.parquet"))
            if len(files) >= FEWEST_FILES and sum(file.stat().st_size for file in files) < SMALL_FILE * len(files):
                done += self._compact(hour, files)
        return done

    def _compact(self, hour: Path, files: list[Path]) -> int:
        remove(self._work)
        self._work.mkdir(parents=True)
        names = [_write(group, self._work, files[0].stem) for group in _alike(files)]
        if len(names) == len(files):
            remove(self._work)
            return 0
        sync(self._work)
        swap = Swap(str(hour.relative_to(self._lake.root)), str(self._work.relative_to(self._lake.root)), names)
        write_whole(self._note, msgspec.json.encode(swap))
        self._finish(swap)
        return 1

    def _finish(self, swap: Swap) -> None:
        hour, new = self._lake.root / swap.hour, self._lake.root / swap.new
        if not (hour / swap.files[0]).exists():
            exchange(new, hour)
            sync(hour.parent)
        remove(new)
        self._note.unlink()


def exchange(new: Path, old: Path) -> None:
    """Let two folders change places, in one step where that can be had."""
    if old.exists():
        libc = ctypes.CDLL(None, use_errno=True)
        swap = getattr(libc, "renameat2", None)
        if swap is not None and swap(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE) == 0:
            return
        if swap is not None and ctypes.get_errno() not in _CANNOT:
            raise OSError(ctypes.get_errno(), f"{old} and {new} can't change places")
        aside = new.with_name(f"{new.name}.old")
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)
    else:
        os.rename(new, old)


def _hours(tables: list[Path], before: str) -> Iterator[Path]:
    for table in tables:
        for hour in sorted(table.glob("namespace=*/queue=*/date=*/hour=*")):
            name = f"{hour.parent.name.removeprefix('date=')}/{hour.name.removeprefix('hour=')}"
            if name < before:
                yield hour


def _alike(files: list[Path]) -> list[list[Path]]:
    """Files with the same columns, together: those from before a schema has grown stay by themselves."""
    groups: list[tuple[pa.Schema, list[Path]]] = []
    for file in files:
        schema = pq.read_schema(file)
        known = next((group for found, group in groups if found.equals(schema)), None)
        if known is None:
            groups.append((schema, [file]))
        else:
            known.append(file)
    return [group for _, group in groups]


def _write(files: list[Path], folder: Path, name: str) -> str:
    """One file out of several with the same columns. Returns its name, which tells the first batch it has."""
    taken = len(list(folder.iterdir()))
    target = folder / f"{name}-compact{taken or ''}.parquet"
    with pq.ParquetWriter(target, pq.read_schema(files[0]), compression="zstd") as writer:
        for file in files:
            with pq.ParquetFile(file) as found:
                for batch in found.iter_batches(batch_size=ROWS):
                    writer.write_batch(batch)
    sync(target)
    return target.name
