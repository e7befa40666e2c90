"""The contents of an archive for a reader of positions."""

from __future__ import annotations

import re

import msgspec

from penstock.flight.calls import Pick
from penstock.patterns import beginning, fits, fits_queue, has_wildcards
from penstock.spark.errors import SourceError
from penstock.spark.lake.files import CUT, KEPT, short
from penstock.spark.lake.tables import TableFile

#: The columns that name a queue.
NAMES = ("namespace", "queue")


class ArchiveContents(msgspec.Struct, frozen=True):
    """An archive of one journal and some of its queues, from position ``start`` up to ``stop`` (exclusive)."""

    #: As in the option, for display.
    place: str
    identity: str
    of: Pick
    start: int
    stop: int
    files: tuple[TableFile, ...]

    def between(self, start: int, stop: int, pick: Pick) -> tuple[TableFile, ...]:
        """The files that may have rows of a range."""
        return tuple(file for file in self.files if has(file, start, stop) and may_have(file, pick))

    def covers(self, pick: Pick) -> bool:
        """Whether all selected queues are archived. False if the patterns do not tell."""
        have, want = (_pattern(each).partition("/") for each in (self.of, pick))
        return all(_within(one, other) for one, other in zip(want[::2], have[::2], strict=True))


def has(file: TableFile, start: int, stop: int) -> bool:
    """Whether a file may have positions of a range."""
    return file.first < stop and start <= file.last


def may_have(file: TableFile, pick: Pick) -> bool:
    """Whether a file may have rows of these queues. Raises SourceError if its folder names are cut too short."""
    named = [file.partition.get(name) for name in NAMES]
    if None in named:
        return True
    if pick.pattern and not pick.queue:
        for part, stored in zip(pick.pattern.split("/", 1), named, strict=True):
            if part != "*" and _cut(str(stored)) and str(stored).startswith(beginning(part)[:KEPT]):
                raise _too_little(str(stored))
    return wanted(pick, *map(str, named))


def _cut(stored: str) -> bool:
    return re.fullmatch(CUT, stored) is not None


def _too_little(stored: str) -> SourceError:
    return SourceError(
        f"option archive: it contains only a part of the name {stored!r}. Name the queue with option queue, "
        "or archive as delta or iceberg, which store names in full"
    )


def wanted(pick: Pick, namespace: str, queue: str) -> bool:
    """Whether a queue is selected. The names may be cut, as in folders."""
    if pick.queue:
        given = zip(NAMES, pick.queue.split("/", 1), (namespace, queue), strict=True)
        return all(stored in (name, short(column, name)) for column, name, stored in given)
    return fits_queue(pick.pattern or "*/*", namespace, queue)


def full_name(column: str, stored: str, pick: Pick) -> str:
    """The full name for a folder's possibly cut name of a namespace or queue. Raises SourceError."""
    if pick.queue:
        return pick.queue.split("/", 1)[NAMES.index(column)]
    if _cut(stored):
        raise _too_little(stored)
    return stored


def _pattern(pick: Pick) -> str:
    return pick.queue or pick.pattern or "*/*"


def _within(part: str, whole: str) -> bool:
    return whole in (part, "*") or (not has_wildcards(part) and fits(whole, part))
