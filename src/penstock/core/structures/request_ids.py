"""Request IDs of a queue: the message that each has published, its requested ID, and how long that is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

#: Until when, the message's position, the request ID, and the requested ID of the message. Both structures refer to the
#: same tuple.
_Entry: TypeAlias = tuple[int, int, bytes, bytes]


class RequestIds:
    """Request IDs. Each is known until its time is over; ``forget`` frees the memory, a little at a time."""

    __slots__ = ("_ends", "_known", "scheduled")

    def __init__(self, known: Mapping[bytes, tuple[int, int, bytes]] | None = None) -> None:
        """``known`` has each one's position, until when it is remembered, and the requested ID (empty: none)."""
        entries = [(until, position, key, asked) for key, (position, until, asked) in (known or {}).items()]
        heapify(entries)
        self._ends: list[_Entry] = entries
        self._known: dict[bytes, _Entry] = {entry[2]: entry for entry in entries}
        #: When the broker searches for those that are over; 0 = it does not.
        self.scheduled = 0

    def __len__(self) -> int:
        return len(self._ends)

    def published(self, request_id: bytes, now: int) -> tuple[int, bytes] | None:
        """The position and the requested ID of the message that this request has published; None if it is forgotten.

        The message itself may be gone, and its requested ID with it.
        """
        entry = self._known.get(request_id)
        return (entry[1], entry[3]) if entry is not None and entry[0] > now else None

    def add(self, request_id: bytes, position: int, until: int, asked_id: bytes = b"") -> None:
        """Remember which message a request has published, and its requested ID."""
        entry = (until, position, request_id, asked_id)
        self._known[request_id] = entry
        heappush(self._ends, entry)

    def forget(self, now: int, limit: int) -> int:
        """Forget up to ``limit`` of those whose time is over. Returns how many there were."""
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

    def as_dict(self, now: int = 0) -> dict[bytes, tuple[int, int, bytes]]:
        """Position, until when, and requested ID of those that are remembered now, by request ID."""
        return {
            key: (position, until, asked) for key, (until, position, _, asked) in self._known.items() if until > now
        }
