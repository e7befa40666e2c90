"""Clients' view of the journal: checked ranges, and the existing queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import chain
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.companions.rights import Right
from penstock.flight.access import Caller, queue_filter, queue_name
from penstock.flight.calls import Pick, Range, Read
from penstock.flight.problems import trouble
from penstock.journal.contract import Follower
from penstock.journal.errors import DataLoss
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views import arrow

Chooser = Callable[[QueueName], bool] | None


class _Ranged(Protocol):
    """A call with a range."""

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def identity(self) -> str: ...
    @property
    def accept_loss(self) -> bool: ...


class Checked(NamedTuple):
    """A valid range of positions, with its losses if the call accepts them."""

    start: int
    stop: int
    losses: list[DataLoss]

    def kept(self) -> Iterator[tuple[int, int]]:
        """The parts of the range that are not lost."""
        start = self.start
        for loss in sorted(self.losses, key=lambda loss: loss.lost):
            low, high = loss.lost
            if start < min(low, self.stop):
                yield start, min(low, self.stop)
            start = max(start, high)
        if start < self.stop:
            yield start, self.stop


class History:
    """The journal of the broker that this process belongs to."""

    def __init__(self, reader: Follower) -> None:
        self.reader = reader

    def status(self) -> Range:
        """Identity and extent of the journal."""
        tail = self.reader.tail()
        return Range(
            identity=f"{tail.identity:016x}",
            earliest=max(tail.floor, tail.start),
            latest=tail.committed,
            version=version("penstock"),
        )

    def put_back_to(self, position: int) -> int:
        """Where the journal was restored to, if a reader at this position has read events that are lost; else 0."""
        latest = self.reader.latest
        if position > latest:
            return latest
        losses = self.reader.losses(position, position) if position > 0 else []
        return next((low for low, high in (loss.lost for loss in losses) if low < position < high), 0)

    def check_identity(self, identity: str) -> None:
        """Raises Trouble if the call means another journal."""
        if identity and identity != f"{self.reader.identity:016x}":
            raise trouble("replaced", f"this is journal {self.reader.identity:016x} now, not {identity}")

    def check(self, call: _Ranged) -> Checked:
        """The range of a call, with 0 replaced by the default. Raises Trouble or DataLoss."""
        self.check_identity(call.identity)
        if call.start < 0 or call.stop < 0:
            raise trouble("bad-request", "positions count from 1; 0 stands for the beginning or the end")
        tail = self.reader.tail()
        earliest = max(tail.floor, tail.start)
        start, stop = call.start or min(earliest, call.stop or earliest), call.stop or tail.committed
        if start > stop and call.stop:
            raise trouble("bad-request", f"the range from {start} to {stop} ends before it starts")
        if start > stop:
            if not call.accept_loss:
                text = (
                    f"positions {stop} to {start - 1} are lost: the journal ends at position {stop}, before the"
                    f" requested position {start}. It was restored, or its database has lost commits"
                )
                raise trouble("data-loss", text, (stop, start))
            return Checked(stop, stop, [])
        losses = self.reader.losses(start, stop)
        if losses and not call.accept_loss:
            raise losses[0]
        return Checked(start, max(min(stop, tail.committed), start), losses)

    def chooser(self, pick: Pick, caller: Caller, *, accept_loss: bool = False) -> Chooser:
        """A test for the selected queues. Raises Trouble for one that does not exist, unless losses are accepted."""
        queues = queue_filter(pick, caller, "read")
        if pick.queue and not accept_loss and not self.exists(queue_name(pick.queue)):
            raise trouble("no-queue", f"there is no queue {pick.queue}")
        return queues

    def names(self) -> list[QueueName]:
        """The existing queues, sorted."""
        entries = self.reader.catalogue().queues.values()
        return sorted(QueueName(entry["namespace"], entry["name"]) for entry in list(entries))

    def exists(self, name: QueueName) -> bool:
        """Whether the queue exists now."""
        catalogue = self.reader.catalogue()
        return any(catalogue.names[number] == name for number in list(catalogue.queues))

    def queues(self, pick: Pick, caller: Caller, right: Right = "read") -> list[QueueName]:
        """The existing queues that are selected and on which the caller has the right."""
        wanted = queue_filter(pick, caller, right)
        return [name for name in self.names() if wanted is None or wanted(name)]

    def read(self, call: Read, caller: Caller) -> Iterator[pa.RecordBatch]:
        """Rows of ``messages`` or ``events``. The call is checked before the first batch is requested."""
        queues = self.chooser(call, caller, accept_loss=call.accept_loss)
        checked = self.check(call)

        def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
            columns = call.columns or None
            return arrow.read(
                self.reader, call.view, start, stop, queues=queues, columns=columns, accept_loss=call.accept_loss
            )

        if not checked.losses:
            return rows(checked.start, checked.stop)
        # Positions beyond retention may still be on disk for a while. Skip them anyway: every re-read must be the same.
        return chain.from_iterable(rows(*span) for span in checked.kept())
