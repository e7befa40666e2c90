"""The queues, as a segment describes them: its first row lists them all, later rows are changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.journal.format.block import Block
from penstock.schema import Kind

_QUEUE_KINDS = (
    Kind.CATALOGUE,
    Kind.QUEUE_CREATED,
    Kind.QUEUE_CONFIGURED,
    Kind.QUEUE_DELETED,
    Kind.NAMESPACE_CREATED,
    Kind.NAMESPACE_DELETED,
)


class QueueName(NamedTuple):
    """The name of a queue. Inside the journal it has a number."""

    namespace: str
    queue: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.queue}"


class SegmentCatalogue:
    """The queues of one segment. Feed it the segment's blocks in order; blocks without details may be omitted.

    Within a segment a number always means the same queue. Across segments it may not: if a crash loses the creation of
    a queue, the next queue gets its number. So each segment has its own catalogue.
    """

    def __init__(self) -> None:
        #: The names of all queues, deleted ones included.
        self.names: dict[int, QueueName] = {}
        #: The existing queues, as the journal describes them.
        self.queues: dict[int, dict[str, Any]] = {}
        self.namespaces: list[str] = []
        self.next_queue_id = 1

    def feed(self, block: Block) -> None:
        """Apply a block's changes of queues."""
        kinds = block.kinds
        rows = np.flatnonzero(np.isin(kinds, _QUEUE_KINDS))
        if not rows.size:
            return
        others = np.searchsorted(block.other_rows(), rows)
        for row, other in zip(rows.tolist(), others.tolist(), strict=True):
            detail = block.value("detail", other) if block.has("detail") else b""
            assert isinstance(detail, bytes)
            self._apply(Kind(int(kinds[row])), int(block.queues[row]), detail)

    def encode(self, lost: tuple[int, int], seen: int) -> bytes:
        """The detail of an equivalent ``CATALOGUE`` row, after a loss of events: see ``repair.bridge``."""
        queues = [{"id": number, **entry} for number, entry in sorted(self.queues.items())]
        described = {"namespaces": self.namespaces, "next_queue_id": self.next_queue_id, "queues": queues}
        return msgspec.json.encode({"lost": lost, "seen": seen, **described})

    def add(self, number: int, entry: dict[str, Any]) -> None:
        """Add a queue. ``entry`` is its description in a ``CATALOGUE`` row, without the number."""
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
