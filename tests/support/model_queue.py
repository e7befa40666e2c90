"""The model's queue: a list of messages, and the waiters. The commands are in :mod:`support.model`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from penstock.core.policy import Policy
from penstock.schema import FOREVER


@dataclass
class Message:
    position: int
    size: int
    priority: int
    expires: int
    retries: int
    place: int  # order among the ready; the old place is kept while the message is out
    state: str = "ready"  # ready, delayed, out or dead
    due: int = 0  # delayed: when it becomes ready
    published_retries: int = FOREVER
    deliveries: int = 0
    reason: int = 0  # why it is dead; stays while a dead letter is out
    died: int = 0  # order among the dead letters
    owner: int = 0  # out: the connection that has it
    handed: int = 0  # out: order of giving
    deadline: int = 0  # out: when its lock ends
    locked: int = 0  # out: order of locking; 0 = not locked
    asked: bytes = b""

    def expired(self, now: int) -> bool:
        return 0 < self.expires <= now

    @property
    def fires(self) -> int:
        """For a delayed message, the time of its next change."""
        return min(self.due, self.expires) if self.expires else self.due


@dataclass
class Waiter:
    connection: int
    window: int  # 0 = a single message


@dataclass
class ModelQueue:
    policy: Policy
    messages: list[Message] = field(default_factory=list)
    waiters: dict[int, Waiter] = field(default_factory=dict)
    line: list[Waiter] = field(default_factory=list)
    dead_line: list[Waiter] = field(default_factory=list)
    requests: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)

    def _in(self, state: str) -> list[Message]:
        return [message for message in self.messages if message.state == state]

    @property
    def ready(self) -> list[Message]:
        return sorted(self._in("ready"), key=lambda message: (-message.priority, message.place))

    @property
    def delayed(self) -> list[Message]:
        return sorted(self._in("delayed"), key=lambda message: (message.fires, message.place))

    @property
    def out(self) -> list[Message]:
        return sorted(self._in("out"), key=lambda message: message.handed)

    @property
    def dead(self) -> list[Message]:
        return sorted(self._in("dead"), key=lambda message: message.died)

    @property
    def positions(self) -> set[int]:
        return {message.position for message in self.messages}

    @property
    def waiting(self) -> list[Message]:
        return self.ready + self.delayed

    def credit(self, waiter: Waiter) -> int:
        """How many messages the waiter may get now. A window also counts messages that an earlier receive got."""
        if not waiter.window:
            return 1
        given = [m for m in self.out if m.owner == waiter.connection and not m.locked and not m.reason]
        return max(0, waiter.window - len(given))

    def line_up(self, connection: int) -> None:
        """Keep or append a waiter with credit in the line; remove one without."""
        waiter = self.waiters.get(connection)
        if waiter is not None and not self.credit(waiter) and waiter in self.line:
            self.line.remove(waiter)
        elif waiter is not None and self.credit(waiter) and waiter not in self.line:
            self.line.append(waiter)

    def describe(self) -> dict[str, Any]:
        """The whole state, for comparison."""
        return {
            "ready": [(m.position, m.priority, m.size, m.expires, m.retries, m.deliveries) for m in self.ready],
            "delayed": [(m.position, m.priority, m.size, m.expires, m.retries, m.fires) for m in self.delayed],
            "out": sorted(
                (m.position, m.size, m.expires, m.retries, m.deliveries, m.owner, m.deadline, m.reason)
                for m in self.out
            ),
            "dead": [(m.position, m.priority, m.size, m.reason, m.retries, m.deliveries) for m in self.dead],
            "line": [(waiter.connection, waiter.window, self.credit(waiter)) for waiter in self.line],
            "dead_line": [waiter.connection for waiter in self.dead_line],
            "asked": {message.position: message.asked for message in self.messages if message.asked},
            "counters": {name: count for name, count in self.counters.items() if count},
            "ready_bytes": sum(message.size for message in self.ready),
            "bytes": sum(message.size for message in self.waiting),
        }
