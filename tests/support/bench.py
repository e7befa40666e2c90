"""A broker with one queue, for tests that read like the rules that they check."""

from __future__ import annotations

from typing import Any

from penstock.core.broker import Broker
from penstock.core.commands.publish import PublishResult
from penstock.core.policy import Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.core.state import WaitEnded
from penstock.schema import Reason

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


class Bench:
    """A broker with one queue and short commands. Messages are numbered from 1 in order of publication."""

    def __init__(self, **policy: Any) -> None:
        self.broker = Broker()
        self.broker.create_namespace("default", NOW)
        self.queue = self.broker.create_queue("default", "q", NOW, Policy(**policy))
        self.publisher = self.peer(99)
        self.numbers: dict[int, int] = {}

    def peer(self, number: int, *, sspq: bool = False) -> Connection:
        return self.broker.connect(number, b"test", spends_retries=sspq)

    def publish(self, count: int = 1, now: int = NOW, size: int = 1, **options: Any) -> PublishResult:
        result = self.broker.publish(self.publisher, self.queue, [bytes(size)] * count, now, Properties(**options))
        for position in range(result.first, result.first + result.accepted):
            self.numbers.setdefault(position, len(self.numbers) + 1)
        return result

    def position(self, number: int) -> int:
        return {value: key for key, value in self.numbers.items()}[number]

    def given(self) -> list[tuple[int, list[int]]]:
        """The effects since the last call: connection and messages; no messages: its wait ended without any."""
        return [
            (
                effect.connection.id,
                [] if isinstance(effect, WaitEnded) else [self.numbers[out.item.position] for out in effect.messages],
            )
            for effect in self.broker.take_effects()
        ]

    def ready(self, queue: Queue | None = None) -> list[int]:
        queue = queue or self.queue
        return [
            self.numbers[item.position] for p in reversed(list(queue.ready.priorities)) for item in queue.ready.lanes[p]
        ]

    def dead(self) -> list[tuple[int, Reason]]:
        return [(self.numbers[item.position], Reason(item.reason)) for item in self.queue.dead]
