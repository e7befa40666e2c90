"""Messages that the journal can't read: they are set aside, and the rest is delivered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.core.queue import Out, Queue
from penstock.server.engine.backlog import Damage
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger

#: Positions of a damaged part that are looked at when a message in it is met: its neighbours are mostly damaged too.
NEIGHBOURS: Final = 500


class DamagedMessages:
    """Sets damaged messages aside, for sessions and for upkeep."""

    def __init__(
        self,
        engine: Engine,
        log: Logger,
        now: Callable[[], int],
        count: Callable[[str, int], None],
        touched: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._log = log
        self._now = now
        self._count = count
        self._touched = touched

    def read_sound(self, queue: Queue, outs: list[Out]) -> tuple[list[Out], list[bytes]]:
        """Set aside those of these messages that can't be read. Returns the other ones, with their payloads.

        Raises NotInMemory: see ``ColdReads.begin``.
        """
        damaged = self._engine.damage([out.item.position for out in outs])
        self.set_aside(queue, damaged)
        sound = [out for out in outs if out.item.position not in damaged]
        return sound, self._engine.payloads([out.item.position for out in sound])

    def set_aside(self, queue: Queue, found: Mapping[int, Damage]) -> int:
        """Set unreadable messages and their neighbours aside, and log it. Returns how many."""
        damaged = {**found, **self._neighbours(queue, found)}
        count = self._engine.broker.set_aside(queue, {at: each.reason for at, each in damaged.items()}, self._now())
        if count:
            self._count("damaged", count)
            reason, lost = next(iter(damaged.values()))
            facts = {"queue": queue.full_name, "messages": count, "first": min(damaged), "last": max(damaged)}
            text = "damaged messages are set aside; put the file back, or give them up by a repair"
            self._log.error(text, **facts, reason=reason, lost=f"{lost[0]} to {lost[1] - 1}")
            self._touched()
        return count

    def _neighbours(self, queue: Queue, damaged: Mapping[int, Damage]) -> dict[int, Damage]:
        """Other ready messages in the damaged parts of the journal, which would otherwise be met one by one."""
        moved = self._engine.moved
        found: dict[int, Damage] = {}
        for lost in {each.lost for each in damaged.values()}:
            known = max(position for position, each in damaged.items() if each.lost == lost)
            for at in range(max(known, lost[0]), min(lost[1], known + NEIGHBOURS)):
                if at not in damaged and lost[0] <= moved.get(at, at) < lost[1] and queue.find_ready(at) is not None:
                    found[at] = Damage(damaged[known].reason, lost)
        return found
