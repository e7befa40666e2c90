"""What the Flight endpoint asks the broker for: see ``flight/flight_requests.py``, which says what each answer means.

Whatever takes long is done a piece at a time, so that other peers are served in between. An answer that promises
something waits for its commit.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import numpy as np

from penstock.core.broker import Broker
from penstock.core.commands.publish import PublishRefusal
from penstock.core.commands.write import ChunkDiffers, Portion, TooManyWriters, WriterError
from penstock.core.leases import MOST_LEASED, MOST_LEASES, Lease
from penstock.core.policy import MOST_SECONDS
from penstock.core.queue import Queue
from penstock.core.writers import ChunkKey
from penstock.endpoint.rights import AskRights
from penstock.flight import flight_requests as requests
from penstock.flight.calls import Code, Problem, Written
from penstock.patterns import fits_queue
from penstock.schema import Reason
from penstock.server.network.peers import origin_of
from penstock.server.network.runtime import ROUND, Runtime
from penstock.server.registry.names import NotYours, check_owner, check_share, check_writer, listed_writers
from penstock.server.registry.readers import TooMany

#: Messages that one request may lease; the next one goes on behind them.
MOST_ROWS = 100_000
#: Of readers and writers. They are part of who did something, in the journal.
NAME_BYTES = 255
#: Kokaq, which shows them to consumers, can say no more.
CORRELATION_BYTES = 255
#: Microseconds for which something may be leased, delayed or kept.
MOST_TIME = MOST_SECONDS * 1_000_000


class ProblemAnswer(Exception):
    """The answer is a problem."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(code=code, text=text)


class RequestHandler:
    """Answers requests on behalf of a running broker."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        #: Leases are settled and taken by one request at a time, though each lets others have their turn.
        self._leasing = asyncio.Lock()
        runtime.readers.leasing = lambda: {lease.entry.reader for lease in self._broker.leases.values()}

    async def answer(self, request: requests.Request) -> Any:
        """The answer, or a ``Problem``."""
        try:
            return await self._answer(request)
        except ProblemAnswer as error:
            return error.problem
        except (TooMany, TooManyWriters) as error:
            return Problem(code="refused", text=str(error))
        except ChunkDiffers as error:
            return Problem(code="differs", text=str(error))
        except NotYours as error:
            return Problem(code="denied", text=str(error))
        except WriterError as error:
            return Problem(code="bad-request", text=str(error))

    async def _answer(self, request: requests.Request) -> Any:
        match request:
            case AskRights():
                return self._runtime.peers.allowed(request, self._runtime.now())
            case requests.Outs():
                return self._outs()
            case requests.TakeLease():
                return await self._lease(request)
            case requests.LeasedRows():
                check_owner("reader", request.reader, self._runtime.readers.owner(request.reader), request.owner)
                return leased_rows(self._broker, self._runtime.engine.moved, request)
            case requests.Waiting():
                return self._waiting(request)
            case requests.Write():
                return await self._write(request)
            case requests.CheckWritten():
                check_writer(self._broker, request.writer, request.owner)
                parts = {partition: (chunks, digest) for partition, chunks, digest in request.parts}
                for _ in self._broker.check_written_in_steps(request.writer, request.epoch, parts):
                    await self._breathe()
                return True
            case requests.EndWriter():
                check_writer(self._broker, request.writer, request.owner)
                known = self._broker.end_writer(request.writer, self._runtime.now(), b"flight")
                await self._runtime.durable()
                return known
            case requests.Writers():
                return listed_writers(self._broker, request.owner)
            case requests.Report():
                _check_name("reader", request.reader)
                self._runtime.readers.report(request, self._runtime.now())
                return True
            case requests.Readers():
                return self._runtime.readers.listed(self._broker)
            case requests.ForgetReader():
                check_owner("reader", request.reader, self._runtime.readers.owner(request.reader), request.owner)
                return await self._forget(request.reader)

    async def _breathe(self) -> None:
        """Let others have their turn, and what has happened be written."""
        self._runtime.touched()
        await asyncio.sleep(0)

    def _outs(self) -> requests.OutNow:
        positions = array("Q")
        for connection in self._broker.holders():
            positions.extend(connection.out)
        damaged = array("Q", [position for queue in self._broker.queues.values() for position in queue.damaged])
        told = {"messages": positions.tobytes(), "damaged": damaged.tobytes()}
        return requests.OutNow(position=self._broker.log.next_position, **told)

    # Leases

    async def _lease(self, request: requests.TakeLease) -> requests.Leased:
        _check_name("reader", request.reader)
        if not 0 < request.timeout <= MOST_TIME:
            raise ProblemAnswer("bad-request", f"a lease lasts 1 to {MOST_TIME} microseconds, not {request.timeout}")
        if min(request.start, request.max_rows, request.max_bytes) < 0:
            raise ProblemAnswer("bad-request", "start, max_rows and max_bytes are numbers from 0")
        if request.start > self._broker.log.next_position:
            end = self._broker.log.next_position
            raise ProblemAnswer(
                "bad-request", f"start {request.start} lies behind the end of the journal, which is {end}"
            )
        async with self._leasing:
            answer = await self._lease_alone(request)
        await self._runtime.durable()
        return answer

    async def _lease_alone(self, request: requests.TakeLease) -> requests.Leased:
        broker, reader, start = self._broker, request.reader, request.start
        check_owner("reader", reader, self._runtime.readers.owner(reader), request.owner)
        self._check_leases(request)
        if not await self._runtime.readers.begin(request, self._runtime.now()):
            raise ProblemAnswer("taken-over", f"another query leases as {reader!r} by now; give each a name of its own")
        for lease in broker.leases_of(reader, stop=start):
            if lease.position in broker.leases:
                broker.settle_lease(lease, self._runtime.now())
                await self._breathe()
        if request.take and not broker.leases_of(reader, start):
            await self._take(request)
        return _outstanding(broker.leases_of(reader, start), start or broker.log.next_position)

    def _check_leases(self, request: requests.TakeLease) -> None:
        """Who leases settles what its reader has had before, so it must be allowed to consume that."""
        for queue in {lease.queue for lease in self._broker.leases_of(request.reader)}:
            if not any(fits_queue(pattern, queue.namespace, queue.name) for pattern in request.may):
                text = f"reader {request.reader!r} has leased from queues that the access rules do not let you consume"
                raise ProblemAnswer("denied", f"{text}; choose another name")

    async def _take(self, request: requests.TakeLease) -> None:
        """Lease more: everybody's share of each queue first, then what is left of the limits."""
        broker = self._broker
        if broker.draining:
            raise ProblemAnswer("away", PublishRefusal.DRAINING.value)
        queues = [queue for name in request.queues if (queue := self._find(name)) is not None and queue.ready]
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
                    await self._breathe()
                    if request.max_bytes and bytes_left <= 0:
                        break
        full = broker.leased >= MOST_LEASED or len(broker.leases) >= MOST_LEASES
        if full and queues and not broker.leases_of(request.reader):
            text = f"{broker.leased} messages are out in {len(broker.leases)} leases: no more may be, until some end"
            raise ProblemAnswer("refused", text)

    def _take_some(
        self, request: requests.TakeLease, queue: Queue, rows: int, size: int, *, first: bool
    ) -> Lease | None:
        """One lease. A message that has more bytes than may be is taken all the same, if it is the first."""
        if queue.id not in self._broker.queues:  # deleted while others had their turn
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

    def _waiting(self, request: requests.Waiting) -> requests.Waits:
        queues = [queue for name in request.queues if (queue := self._find(name)) is not None and queue.ready]
        oldest = min((first for queue in queues if (first := queue.oldest_position) is not None), default=0)
        place = self._runtime.engine.moved.get(oldest, oldest)
        return requests.Waits(rows=sum(queue.ready for queue in queues), place=place)

    async def _forget(self, reader: str) -> bool:
        async with self._leasing:
            known = self._runtime.readers.forget(reader)
            for lease in self._broker.leases_of(reader):
                if lease.position in self._broker.leases:
                    self._broker.return_lease(lease, Reason.RELEASED, self._runtime.now())
                    known = True
                    await self._breathe()
        await self._runtime.durable()
        return known

    # Writers

    async def _write(self, request: requests.Write) -> Written:
        runtime, count = self._runtime, len(request.payloads)
        _check_name("writer", request.writer)
        if min(request.epoch, request.partition, request.chunk) < 0:
            raise ProblemAnswer("bad-request", "epoch, partition and chunk are numbers from 0")
        _check_size(request, runtime.options.limits.payload_bytes)
        while runtime.congested:
            await asyncio.sleep(ROUND)
        check_writer(self._broker, request.writer, request.owner)
        if request.begun and request.writer not in self._broker.writers:
            raise ProblemAnswer("bad-request", f"writer {request.writer!r} has ended, or was never begun")
        key = ChunkKey(
            request.writer, request.epoch, request.partition, request.chunk, request.digest, owner=request.owner
        )
        duplicate = self._broker.was_written(key)
        if not duplicate:
            check_share(self._broker, request, runtime.options.limits)
            source = f"flight {request.peer}".rstrip().encode()
            done = self._broker.write(source, key, self._portions(request), runtime.now())
            if done.refusal is not None:
                where = f"{done.queue.full_name}: " if done.queue else ""
                raise ProblemAnswer(
                    "away" if done.refusal is PublishRefusal.DRAINING else "refused", where + done.refusal.value
                )
        await self._runtime.durable()
        return Written(chunk=request.chunk, rows=count, duplicate=duplicate)

    def _portions(self, request: requests.Write) -> list[Portion]:
        """The rows by queue. Those of one queue keep their order."""
        which = _numbers(request.queue, "u4", "queue", len(request.payloads))
        if which.size != len(request.payloads) or (which.size and int(which.max()) >= len(request.queues)):
            raise ProblemAnswer("bad-request", "every row has the index of one of the queues")
        columns = (
            _numbers(request.ttl, "i8", "ttl", len(which), low=-1),
            _numbers(request.delay, "i8", "delay", len(which)),
            _numbers(request.priority, "u8", "priority", len(which)),
        )
        queues = {number: self._queue(request, request.queues[number]) for number in np.unique(which).tolist()}
        portions: list[Portion] = []
        for number, queue in queues.items():
            rows = np.flatnonzero(which == number)
            ttl, delay, priority = (column[rows].tolist() if column.size else () for column in columns)
            payloads, correlation_ids = (_pick(each, rows) for each in (request.payloads, request.correlation_ids))
            portions.append(Portion(queue, payloads, ttl, delay, priority, correlation_ids))
        return portions

    def _queue(self, request: requests.Write, full_name: str) -> Queue:
        found = self._find(full_name)
        if found is not None:
            return found
        namespace, slash, name = full_name.partition("/")
        if not (namespace and slash and name):
            raise ProblemAnswer("bad-request", f"a queue is namespace/name, as in default/jobs, not {full_name!r}")
        if not request.create_queues:
            raise ProblemAnswer(
                "no-queue", f"there is no queue {full_name}: make it first, or write with create_queues"
            )
        creation = self._runtime.creation
        why_not = creation.why_no_queue(namespace, name) or creation.why_not_over_flight(
            origin_of(host_of(request.peer))
        )
        if why_not:
            raise ProblemAnswer("refused", f"queue {full_name} may not be made: {why_not}")
        now, source = self._runtime.now(), f"flight {request.peer}".rstrip().encode()
        self._broker.create_namespace(namespace, now, source)
        queue = self._broker.create_queue(namespace, name, now, source=source)
        creation.note_over_flight(origin_of(host_of(request.peer)), queue)
        return queue

    def _find(self, full_name: str) -> Queue | None:
        namespace, _, name = full_name.partition("/")
        return self._broker.queue(namespace, name)


def host_of(peer: str) -> str:
    """The address of a peer without its port: each connection has another one."""
    return peer.rpartition(":")[0].strip("[]") or peer


def leased_rows(broker: Broker, moved: dict[int, int], request: requests.LeasedRows) -> requests.LeasedMessages:
    """What a reader has leased, and where it lies: ``moved`` says where what was carried forward does."""
    leases = broker.leases_of(request.reader, request.start, request.stop)
    positions = array("Q", [position for lease in leases for position in lease.messages])
    places = array("Q", [moved.get(position, position) for position in positions]) if moved else positions
    return requests.LeasedMessages(
        messages=positions.tobytes(),
        places=places.tobytes(),
        queues=[lease.queue.full_name for lease in leases],
        counts=[len(lease.connection.out) for lease in leases],
    )


def _outstanding(leases: list[Lease], otherwise: int) -> requests.Leased:
    if not leases:
        return requests.Leased(first=otherwise, stop=otherwise, rows=0, bytes=0)
    rows = sum(len(lease.connection.out) for lease in leases)
    size = sum(lease.size for lease in leases)
    return requests.Leased(first=leases[0].position, stop=leases[-1].position + 1, rows=rows, bytes=size)


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name.encode()) <= NAME_BYTES:
        raise ProblemAnswer("bad-request", f"a {what} has a name of 1 to {NAME_BYTES} bytes, not {len(name.encode())}")


def _check_size(request: requests.Write, payload_bytes: int) -> None:
    if len(request.payloads) > requests.CHUNK_ROWS:
        rows = len(request.payloads)
        raise ProblemAnswer("bad-request", f"a chunk has {requests.CHUNK_ROWS} rows at most, not {rows}: send several")
    if request.correlation_ids and len(request.correlation_ids) != len(request.payloads):
        raise ProblemAnswer("bad-request", "every row has a correlation_id, or none has")
    total = sum(map(len, request.payloads)) + sum(map(len, request.correlation_ids))
    if total > requests.CHUNK_BYTES:
        raise ProblemAnswer(
            "bad-request", f"a chunk has {requests.CHUNK_BYTES} bytes at most, not {total}: send several"
        )
    largest = max(map(len, request.payloads), default=0)
    if largest > payload_bytes:
        raise ProblemAnswer(
            "bad-request", f"a payload has {payload_bytes} bytes at most (limits.payload_bytes), not {largest}"
        )
    longest = max(map(len, request.correlation_ids), default=0)
    if longest > CORRELATION_BYTES:
        raise ProblemAnswer("bad-request", f"a correlation_id has {CORRELATION_BYTES} bytes at most, not {longest}")


def _numbers(data: bytes, kind: str, name: str, rows: int, low: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
    """A column of numbers; none, or one for every row."""
    dtype = np.dtype(f"<{kind}")
    if data and len(data) != rows * dtype.itemsize:
        raise ProblemAnswer(
            "bad-request", f"{name} has {len(data)} bytes where {rows} rows need {rows * dtype.itemsize}"
        )
    found = np.frombuffer(data, dtype)
    if kind == "i8" and found.size and not low <= int(found.min()) <= int(found.max()) <= MOST_TIME:
        raise ProblemAnswer("bad-request", f"{name} is {low} to {MOST_TIME} microseconds")
    return found


def _pick(values: list[bytes], rows: np.ndarray[Any, np.dtype[Any]]) -> list[bytes]:
    if not values or len(rows) == len(values):
        return values
    return [values[row] for row in rows.tolist()]
