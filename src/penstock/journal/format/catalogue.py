"""Which queues there are, as a segment tells it: its first row lists them all, later rows tell of changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.journal.format.block import Block
from penstock.schema import Kind

_TELLING = (
    Kind.CATALOGUE,
    Kind.QUEUE_CREATED,
    Kind.QUEUE_CONFIGURED,
    Kind.QUEUE_DELETED,
    Kind.NAMESPACE_CREATED,
    Kind.NAMESPACE_DELETED,
)


class QueueName(NamedTuple):
    """How people call a queue. The journal calls it by a number."""

    namespace: str
    queue: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.queue}"


class SegmentCatalogue:
    """The queues of one segment. Feed it the segment's blocks from the first on; those without details may be left out.

    Within a segment a number names one queue for good. Between segments it may not: a queue whose creation a crash took
    away leaves its number to the next. So each segment has a catalogue of its own.
    """

    def __init__(self) -> None:
        #: The name of every queue that has been mentioned, also of those that are deleted by now.
        self.names: dict[int, QueueName] = {}
        #: The queues that exist now, as the journal describes them.
        self.queues: dict[int, dict[str, Any]] = {}
        self.namespaces: list[str] = []
        self.next_queue_id = 1

    def feed(self, block: Block) -> None:
        """Take note of what a block says about queues."""
        kinds = block.kinds
        rows = np.flatnonzero(np.isin(kinds, _TELLING))
        if not rows.size:
            return
        others = np.searchsorted(block.other_rows(), rows)
        for row, other in zip(rows.tolist(), others.tolist(), strict=True):
            detail = block.value("detail", other) if block.has("detail") else b""
            assert isinstance(detail, bytes)
            self._apply(Kind(int(kinds[row])), int(block.queues[row]), detail)

    def encode(self, lost: tuple[int, int], seen: int) -> bytes:
        """The detail of a ``CATALOGUE`` row that says the same, after a loss of events: see ``bridge``."""
        queues = [{"id": number, **entry} for number, entry in sorted(self.queues.items())]
        described = {"namespaces": self.namespaces, "next_queue_id": self.next_queue_id, "queues": queues}
        return msgspec.json.encode({"lost": lost, "seen": seen, **described})

    def add(self, number: int, entry: dict[str, Any]) -> None:
        """A queue exists; ``entry`` is its description as a ``CATALOGUE`` row has it, without the number."""
        self.names[number] = QueueName(entry["namespace"], entry["name"])
        self.queues[number] = entry
        self.next_queue_id = max(self.next_queue_id, number + 1)
        if entry["namespace"] not in self.namespaces:
            self.namespaces.append(entry["namespace"])

    def _apply(self, kind: Kind, queue: int, detail: bytes) -> None:
        match kind:
            case Kind.CATALOGUE:
                described = msgspec.json.decode(detail)
                self.namespaces = described["namespaces"]
                self.next_queue_id = described["next_queue_id"]
                self.queues = {}
                for entry in described["queues"]:
                    self.add(entry.pop("id"), entry)
            case Kind.QUEUE_CREATED | Kind.QUEUE_CONFIGURED:
                self.add(queue, {**self.queues.get(queue, {}), **msgspec.json.decode(detail)})
            case Kind.QUEUE_DELETED:
                self.queues.pop(queue, None)
            case Kind.NAMESPACE_CREATED:
                self.namespaces.append(detail.decode())
            case _:
                self.namespaces = [name for name in self.namespaces if name != detail.decode()]
