"""The content of a checkpoint: a position in a journal, the source, and how the batch that ends there is cut.

    {"identity": "5f0c…", "position": 4711,                            everything before this position was read
     "of": {"view": "messages", "queue": "default/jobs"},              of this queue
     "parts": [2000, 2000, 711]}                                       by three tasks, with this many positions each

    {"identity": "5f0c…", "position": 4711, "mode": "consume",         the leases before this position are done
     "of": {"queue": "default/jobs", "reader": "worker"},
     "start": 4000, "parts": [20000, 20000]}                           those from 4000 on, as rows for each task

The identity is the journal's. A broker whose data was replaced starts another journal, whose positions have another
meaning.

A repeated batch must be cut the same way: what a task has written is identified by the task's number. Spark keeps only
the end of each batch before it starts (not even where the first batch begins), so the end contains the whole plan.
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
    """A position in a journal."""

    identity: str
    position: int
    mode: str = "read"
    #: See ``subject``. None only for an offset that is not kept: the head of the journal.
    of: dict[str, str] | None = None
    #: The size of each part of the batch that ends here. None: no batch ends here.
    parts: tuple[int, ...] | None = None
    #: mode=consume: the start of that batch's leases.
    start: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The JSON that Spark keeps. Equal offsets must be equal texts, since Spark makes a batch of any difference."""
        fields: dict[str, Any] = {"identity": self.identity, "position": self.position}
        if self.mode != "read":
            fields["mode"] = self.mode
        if self.of is not None:
            fields["of"] = self.of
        if self.start:
            fields["start"] = self.start
        return fields if self.parts is None else {**fields, "parts": list(self.parts)}

    def at(self, position: int, of: dict[str, str], parts: Sequence[int] | None = None, start: int = 0) -> Offset:
        """Another position in the same journal."""
        cut = None if parts is None else tuple(parts)
        return Offset(self.identity, position, self.mode, of, cut, start)

    def spans(self) -> list[tuple[int, int]]:
        """The positions of each of the batch's tasks, counted back from the end."""
        parts = self.parts or ()
        return list(pairwise(accumulate(parts, initial=self.position - sum(parts))))


def subject(settings: SourceSettings) -> dict[str, str]:
    """What a query reads, as far as it makes a checkpoint useless for other queries."""
    where = {"queue": settings.queue} if settings.queue else {"queuePattern": settings.pattern or ALL_QUEUES}
    if settings.mode == "consume":
        return {**where, "reader": settings.reader}
    return {"view": settings.view, **where}


def offset(stored: Mapping[str, Any], settings: SourceSettings) -> Offset:
    """Decode a checkpoint's offset. Raises SourceError for another source, mode, view, queue or reader."""
    identity, position, had = stored.get("identity"), stored.get("position"), stored.get("mode", "read")
    of, parts, start = stored.get("of"), stored.get("parts"), stored.get("start", 0)
    if not (
        isinstance(identity, str)
        and re.fullmatch("[0-9a-f]{16}", identity)
        and _is_number(position)
        and isinstance(of, dict)
        and _are_parts(parts)
        and _is_number(start, 0)
    ):
        raise SourceError(f"the checkpoint contains an offset of another source: {dict(stored)}. Use a new checkpoint")
    mode = settings.mode or "read"
    if had != mode:
        raise SourceError(
            f"the checkpoint was written with mode={had}, and this query has mode={mode}. Use a new checkpoint"
        )
    if of != subject(settings):
        raise SourceError(_another(of, settings, position))
    return Offset(identity, position, mode, of, None if parts is None else tuple(parts), start)


def _another(of: Mapping[str, str], settings: SourceSettings, position: int) -> str:
    was, now = (", ".join(f"{name}={value}" for name, value in each.items()) for each in (of, subject(settings)))
    resume = "" if settings.mode == "consume" else f"; with startingPosition={position} it continues there"
    text = f"the checkpoint belongs to {was}, and this query reads {now}"
    return f"{text}. Restore the old options, or use a new checkpoint{resume}"


def _is_number(value: object, least: int = 1) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_parts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_number, value)))


def lengths(start: int, cuts: Sequence[int], stop: int) -> list[int]:
    """The lengths of a range's parts, in order. If there are too many cuts, neighbours are merged."""
    step = -(-(len(cuts) + 1) // MOST_PARTS)
    inner = list(cuts)[step - 1 :: step]
    return [high - low for low, high in pairwise([start, *inner, stop])]


def shares(rows: int, tasks: int) -> list[int]:
    """Divide rows among tasks. Every share has rows."""
    wanted = max(min(tasks, rows, MOST_PARTS), 0)
    return [high - low for low, high in pairwise(rows * each // wanted for each in range(wanted + 1))] if wanted else []
