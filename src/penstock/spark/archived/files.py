"""What an archive consists of, as a reader of positions sees it."""

from __future__ import annotations

import re

import msgspec

from penstock.flight.calls import Pick
from penstock.patterns import beginning, fits, fits_queue, has_wildcards
from penstock.spark.errors import SourceError
from penstock.spark.pipelines.lake.files import CUT, KEPT, short
from penstock.spark.pipelines.lake.tables import TableFile

#: The columns that name a queue.
NAMES = ("namespace", "queue")


class Archive(msgspec.Struct, frozen=True):
    """What is in an archive, from position ``start`` to before ``stop``, of one journal and of some of its queues."""

    #: As the option names it, for people.
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
        """Whether all queues that are meant are archived. False where that can't be told from the patterns."""
        have, want = (_pattern(each).partition("/") for each in (self.of, pick))
        return all(_within(one, other) for one, other in zip(want[::2], have[::2], strict=True))


def has(file: TableFile, start: int, stop: int) -> bool:
    """Whether some positions of a range may be in a file."""
    return file.first < stop and start <= file.last


def may_have(file: TableFile, pick: Pick) -> bool:
    """Whether some rows of a file may be of these queues. Raises SourceError if folders have too little of a name."""
    named = [file.partition.get(name) for name in NAMES]
    if None in named:
        return True
    if pick.pattern and not pick.queue:
        for part, found in zip(pick.pattern.split("/", 1), named, strict=True):
            if part != "*" and _cut(str(found)) and str(found).startswith(beginning(part)[:KEPT]):
                raise _too_little(str(found))
    return wanted(pick, *map(str, named))


def _cut(found: str) -> bool:
    return re.fullmatch(CUT, found) is not None


def _too_little(found: str) -> SourceError:
    return SourceError(
        f"option archive: it has only a part of the name {found!r}. Name the queue with option queue, "
        "or archive into a table of another kind: Delta and Iceberg have names in full"
    )


def wanted(pick: Pick, namespace: str, queue: str) -> bool:
    """Whether a queue is one of those that are meant. Names may be cut, as folders have them."""
    if pick.queue:
        given = zip(NAMES, pick.queue.split("/", 1), (namespace, queue), strict=True)
        return all(found in (name, short(column, name)) for column, name, found in given)
    return fits_queue(pick.pattern or "*/*", namespace, queue)


def full_name(column: str, found: str, pick: Pick) -> str:
    """The name of a namespace or queue of which a folder may have only a part. Raises SourceError."""
    if pick.queue:
        return pick.queue.split("/", 1)[NAMES.index(column)]
    if _cut(found):
        raise _too_little(found)
    return found


def _pattern(pick: Pick) -> str:
    return pick.queue or pick.pattern or "*/*"


def _within(part: str, whole: str) -> bool:
    return whole in (part, "*") or (not has_wildcards(part) and fits(whole, part))
