"""What a checkpoint remembers: a place in a journal, what it is read of, and how the batch that ends there is cut.

    {"identity": "5f0c…", "position": 4711,                            everything before this position was read
     "of": {"view": "messages", "queue": "default/jobs"},              of this queue
     "parts": [2000, 2000, 711]}                                       by three tasks, of so many positions each

    {"identity": "5f0c…", "position": 4711, "mode": "consume",         the leases before this position are worked off
     "of": {"queue": "default/jobs", "reader": "worker"},
     "start": 4000, "parts": [20000, 20000]}                           those from 4000 on, of so many rows for each task

The identity is that of the journal. A broker whose data was replaced starts another one, whose positions mean something
else, so it must be told apart.

A batch that is repeated must be cut as it was: what a task has written is known by the number of the task. Spark keeps
the end of each batch before it starts, and nothing else (not even where the first batch begins), so the end has
all of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeGuard

from penstock.spark.errors import SourceError
from penstock.spark.options import SourceSettings

#: Parts of a batch at most. Each is a number in the offset, which Spark keeps for every batch and shows to operators.
MOST_PARTS = 2_000
ALL_QUEUES = "*/*"


class Offset(NamedTuple):
    """A place in a journal."""

    identity: str
    position: int
    mode: str = "read"
    #: See ``subject``. None only for a place that is not kept: the head of the journal.
    of: dict[str, str] | None = None
    #: How much each task of the batch that ends here reads. None: no batch ends here.
    parts: tuple[int, ...] | None = None
    #: mode=consume: where the leases of that batch begin.
    start: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As Spark keeps it. Equal offsets must be equal texts, as Spark makes a batch of any difference."""
        found: dict[str, Any] = {"identity": self.identity, "position": self.position}
        if self.mode != "read":
            found["mode"] = self.mode
        if self.of is not None:
            found["of"] = self.of
        if self.start:
            found["start"] = self.start
        return found if self.parts is None else {**found, "parts": list(self.parts)}

    def at(self, position: int, of: dict[str, str], parts: Sequence[int] | None = None, start: int = 0) -> Offset:
        """Another place in the same journal."""
        cut = None if parts is None else tuple(parts)
        return Offset(self.identity, position, self.mode, of, cut, start)

    def spans(self) -> list[tuple[int, int]]:
        """The ranges of positions that the tasks of the batch read. They end here, and so begin where they must."""
        parts = self.parts or ()
        return list(pairwise(accumulate(parts, initial=self.position - sum(parts))))


def subject(settings: SourceSettings) -> dict[str, str]:
    """What a query reads, as far as a checkpoint of it is of no use for anything else."""
    where = {"queue": settings.queue} if settings.queue else {"queuePattern": settings.pattern or ALL_QUEUES}
    if settings.mode == "consume":
        return {**where, "reader": settings.reader}
    return {"view": settings.view, **where}


def offset(found: Mapping[str, Any], settings: SourceSettings) -> Offset:
    """Read what a checkpoint has. Raises SourceError for that of another source, mode, view, queue or reader."""
    identity, position, had = found.get("identity"), found.get("position"), found.get("mode", "read")
    of, parts, start = found.get("of"), found.get("parts"), found.get("start", 0)
    if not (
        isinstance(identity, str)
        and re.fullmatch("[0-9a-f]{16}", identity)
        and _is_number(position)
        and isinstance(of, dict)
        and _are_parts(parts)
        and _is_number(start, 0)
    ):
        raise SourceError(f"the checkpoint has an offset that is none of ours: {dict(found)}. Use a new checkpoint")
    mode = settings.mode or "read"
    if had != mode:
        raise SourceError(f"the checkpoint is one of mode={had}, and this query has mode={mode}. Use a new checkpoint")
    if of != subject(settings):
        raise SourceError(_another(of, settings, position))
    return Offset(identity, position, mode, of, None if parts is None else tuple(parts), start)


def _another(of: Mapping[str, str], settings: SourceSettings, position: int) -> str:
    was, now = (", ".join(f"{name}={value}" for name, value in each.items()) for each in (of, subject(settings)))
    go_on = "" if settings.mode == "consume" else f"; with startingPosition={position} it goes on where this one is"
    return f"the checkpoint is of {was}, and this query reads {now}. Give back what was, or use a new checkpoint{go_on}"


def _is_number(found: object, least: int = 1) -> TypeGuard[int]:
    return isinstance(found, int) and not isinstance(found, bool) and found >= least


def _are_parts(found: object) -> bool:
    return found is None or (isinstance(found, list) and all(map(_is_number, found)))


def lengths(start: int, cuts: Sequence[int], stop: int) -> list[int]:
    """How long the parts are of a range with these cuts, in order. With too many, neighbours are put together."""
    step = -(-(len(cuts) + 1) // MOST_PARTS)
    inner = list(cuts)[step - 1 :: step]
    return [high - low for low, high in pairwise([start, *inner, stop])]


def shares(rows: int, tasks: int) -> list[int]:
    """So many rows, divided among so many tasks. None is without rows."""
    wanted = max(min(tasks, rows, MOST_PARTS), 0)
    return [high - low for low, high in pairwise(rows * each // wanted for each in range(wanted + 1))] if wanted else []
