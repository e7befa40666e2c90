"""The Flight endpoint's requests about reading: what is in flight, leases, and how far readers are.

Long work goes a piece at a time, so that peers are served in between.
"""

from __future__ import annotations

from array import array

from penstock.core.broker import Broker
from penstock.core.commands.publish import PublishRefusal
from penstock.core.leases import MOST_LEASED, MOST_LEASES, Lease
from penstock.core.policy import MOST_SECONDS
from penstock.core.queue import Queue
from penstock.flight.flight_requests import (
    Leased,
    LeasedMessages,
    LeasedRows,
    OutNow,
    Outs,
    Report,
    TakeLease,
    Waiting,
    Waits,
)
from penstock.patterns import fits_queue
from penstock.server.companions.request_table import Handlers, RequestRefused, yield_to_peers
from penstock.server.network.runtime import Runtime
from penstock.server.registry.names import check_name

#: Most messages of one request; the next one continues after them.
MOST_ROWS = 100_000
#: Longest lease, delay or time to live, in microseconds.
MOST_TIME = MOST_SECONDS * 1_000_000


class LeaseRequests:
    """Answers them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._readers = runtime.readers
        self.handlers: Handlers = {
            Outs: self._outs,
            TakeLease: self._lease,
            LeasedRows: self._leased_rows,
            Waiting: self._waiting,
            Report: self._report,
        }

    def _outs(self, request: Outs) -> OutNow:
        positions = array("Q")
        for connection in self._broker.holders():
            positions.extend(connection.out)
        damaged = array("Q", [position for queue in self._broker.queues.values() for position in queue.damaged])
        return OutNow(position=self._broker.log.next_position, messages=positions.tobytes(), damaged=damaged.tobytes())

    def _leased_rows(self, request: LeasedRows) -> LeasedMessages:
        self._readers.check_owner(request.reader, request.owner)
        return leased_rows(self._broker, self._runtime.engine.moved, request)

    def _report(self, request: Report) -> bool:
        check_name("reader", request.reader)
        self._readers.report(request, self._runtime.now())
        return True

    async def _lease(self, request: TakeLease) -> Leased:
        check_name("reader", request.reader)
        if not 0 < request.timeout <= MOST_TIME:
            raise RequestRefused("bad-request", f"a lease lasts 1 to {MOST_TIME} microseconds, not {request.timeout}")
        if min(request.start, request.max_rows, request.max_bytes) < 0:
            raise RequestRefused("bad-request", "start, max_rows and max_bytes are numbers from 0")
        if request.start > self._broker.log.next_position:
            end = self._broker.log.next_position
            raise RequestRefused(
                "bad-request", f"start {request.start} is after the end of the journal, which is {end}"
            )
        async with self._readers.leasing:
            answer = await self._lease_alone(request)
        await self._runtime.durable()
        return answer

    async def _lease_alone(self, request: TakeLease) -> Leased:
        broker, reader, start = self._broker, request.reader, request.start
        self._readers.check_owner(reader, request.owner)
        self._check_leases(request)
        if not await self._readers.begin(request, self._runtime.now()):
            raise RequestRefused(
                "taken-over", f"another query leases as {reader!r} by now; give each a name of its own"
            )
        for lease in broker.leases_of(reader, stop=start):
            if lease.position in broker.leases:
                broker.settle_lease(lease, self._runtime.now())
                await yield_to_peers(self._runtime)
        if request.take and not broker.leases_of(reader, start):
            await self._take(request)
        return _outstanding(broker.leases_of(reader, start), start or broker.log.next_position)

    def _check_leases(self, request: TakeLease) -> None:
        """Leasing settles the reader's earlier leases, so the caller must have the right to consume those."""
        for queue in {lease.queue for lease in self._broker.leases_of(request.reader)}:
            if not any(fits_queue(pattern, queue.namespace, queue.name) for pattern in request.may):
                text = f"reader {request.reader!r} has leased from queues that the access rules do not let you consume"
                raise RequestRefused("denied", f"{text}; choose another name")

    async def _take(self, request: TakeLease) -> None:
        """Lease more: an equal share from each queue first, then the rest of the limits."""
        broker = self._broker
        if broker.draining:
            raise RequestRefused("away", PublishRefusal.DRAINING.value)
        queues = self._ready(request.queues)
        most = rows = min(request.max_rows or MOST_ROWS, MOST_ROWS)
        size = request.max_bytes
        for parts in (len(queues), 1):
            share, bytes_share = -(-rows // max(parts, 1)), -(-size // max(parts, 1))
            for queue in queues:
                left, bytes_left = min(share, rows), bytes_share
                while left > 0 and (size > 0 or not request.max_bytes):
                    first = rows == most
                    lease = self._take_some(request, queue, left, min(bytes_left, size), first=first)
                    if lease is None:
                        break
                    left, rows = left - len(lease.connection.out), rows - len(lease.connection.out)
                    bytes_left, size = bytes_left - lease.size, size - lease.size
                    await yield_to_peers(self._runtime)
                    if request.max_bytes and bytes_left <= 0:
                        break
        full = broker.leased >= MOST_LEASED or len(broker.leases) >= MOST_LEASES
        if full and queues and not broker.leases_of(request.reader):
            text = f"{broker.leased} messages are out in {len(broker.leases)} leases: no more may be, until some end"
            raise RequestRefused("refused", text)

    def _take_some(self, request: TakeLease, queue: Queue, rows: int, size: int, *, first: bool) -> Lease | None:
        """Take one lease. The first message is taken even if it exceeds the limit of bytes."""
        if queue.id not in self._broker.queues:  # deleted during an earlier turn
            return None
        return self._broker.lease(
            request.reader,
            queue,
            self._runtime.now(),
            request.timeout,
            instance=request.instance,
            max_rows=rows,
            max_bytes=max(size, 1) if request.max_bytes else 0,
            one_anyway=first,
        )

    def _waiting(self, request: Waiting) -> Waits:
        queues = self._ready(request.queues)
        oldest = min((first for queue in queues if (first := queue.ready.oldest_position) is not None), default=0)
        place = self._runtime.engine.moved.get(oldest, oldest)
        return Waits(rows=sum(len(queue.ready) for queue in queues), place=place)

    def _ready(self, names: list[str]) -> list[Queue]:
        """The named queues that exist and have ready messages."""
        found = (self._broker.queue(*name.partition("/")[::2]) for name in names)
        return [queue for queue in found if queue is not None and queue.ready]


def leased_rows(broker: Broker, moved: dict[int, int], request: LeasedRows) -> LeasedMessages:
    """A reader's leased messages and their places. ``moved`` has the places of those that were carried forward."""
    leases = broker.leases_of(request.reader, request.start, request.stop)
    positions = array("Q", [position for lease in leases for position in lease.messages])
    places = array("Q", [moved.get(position, position) for position in positions]) if moved else positions
    return LeasedMessages(
        messages=positions.tobytes(),
        places=places.tobytes(),
        queues=[lease.queue.full_name for lease in leases],
        counts=[len(lease.connection.out) for lease in leases],
    )


def _outstanding(leases: list[Lease], otherwise: int) -> Leased:
    if not leases:
        return Leased(first=otherwise, stop=otherwise, rows=0, bytes=0)
    rows = sum(len(lease.connection.out) for lease in leases)
    size = sum(lease.size for lease in leases)
    return Leased(first=leases[0].position, stop=leases[-1].position + 1, rows=rows, bytes=size)
