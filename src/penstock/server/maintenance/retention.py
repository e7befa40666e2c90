"""How much settled history is kept: by age, by size, and for readers that have pinned it.

History goes in whole extents of the log, oldest first. The *floor* is where readable history begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.journal.contract import Log
from penstock.server.registry.readers import Pin


class Retention(NamedTuple):
    """How much settled history is kept for readers; 0 means without limit. Live messages are always kept."""

    #: Microseconds.
    age: int = 7 * 24 * 3600 * 1_000_000
    bytes: int = 0
    #: Pins lapse if their reader has not reported for so long (0: pins are off), or would keep more than these bytes
    #: beyond the rest.
    pin_age: int = 7 * 24 * 3600 * 1_000_000
    pin_bytes: int = 10 * 2**30

    def floor(self, log: Log, now: int) -> int:
        """Where history should begin without pins: the first extent to keep."""
        extents = log.extents()
        floor = log.floor
        total = sum(extent.size for extent in extents)
        for extent in extents[:-1]:
            too_old = self.age and extent.last_at < now - self.age
            too_much = self.bytes and total > self.bytes
            if not (too_old or too_much):
                break
            total -= extent.size
            floor = max(floor, extent.end)
        return floor

    def pinned_floor(self, log: Log, floor: int, pins: Iterable[Pin], now: int) -> tuple[int, list[tuple[Pin, str]]]:
        """Where history should begin with pins, and the pins that lapse, each with the reason."""
        lapsed: list[tuple[Pin, str]] = []
        extents = log.extents()
        for pin in sorted(pins, key=lambda pin: pin.position):
            if pin.position >= floor:
                break
            kept = [each for each in extents if pin.position < each.end <= floor]
            if now - pin.at > self.pin_age:
                lapsed.append((pin, "it has not reported for too long"))
            elif self.pin_bytes and sum(each.size for each in kept) > self.pin_bytes:
                lapsed.append((pin, "it would keep too many bytes"))
            elif kept:
                return max(log.floor, kept[0].first), lapsed
        return floor, lapsed
