"""Request IDs of a queue: which message each has published, and until when that is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

#: Until when, the message's position, and the request ID. What both structures refer to is one tuple.
_Entry: TypeAlias = tuple[int, int, bytes]


class RequestIds:
    """Request IDs. Each is known until its time is over; ``forget`` gives the memory back, a little at a time."""

    __slots__ = ("_ends", "_known", "scheduled")

    def __init__(self, known: Mapping[bytes, tuple[int, int]] | None = None) -> None:
        """``known`` has the position of each, and until when it is remembered."""
        entries = [(until, position, key) for key, (position, until) in (known or {}).items()]
        heapify(entries)
        self._ends: list[_Entry] = entries
        self._known: dict[bytes, _Entry] = {entry[2]: entry for entry in entries}
        #: When the broker looks for those that are over; 0 = it does not.
        self.scheduled = 0

    def __len__(self) -> int:
        return len(self._ends)

    def position(self, request_id: bytes, now: int) -> int | None:
        """The message that this request has published. None: nobody has to know."""
        entry = self._known.get(request_id)
        return entry[1] if entry is not None and entry[0] > now else None

    def add(self, request_id: bytes, position: int, until: int) -> None:
        """Remember which message a request has published."""
        entry = (until, position, request_id)
        self._known[request_id] = entry
        heappush(self._ends, entry)

    def forget(self, now: int, limit: int) -> int:
        """Give up to ``limit`` of them up whose time is over. Returns how many that were."""
        ends, known = self._ends, self._known
        done = 0
        while done < limit and ends and ends[0][0] <= now:
            entry = heappop(ends)
            if known.get(entry[2]) is entry:  # else it was used again since
                del known[entry[2]]
            done += 1
        if not known:
            self._known = {}  # a dictionary does not shrink by itself
        return done

    @property
    def next_end(self) -> int | None:
        """When the first of them is over."""
        return self._ends[0][0] if self._ends else None

    def as_dict(self, now: int = 0) -> dict[bytes, tuple[int, int]]:
        """Position, and until when, of those that are remembered now, by request ID."""
        return {key: (position, until) for key, (until, position, _) in self._known.items() if until > now}
