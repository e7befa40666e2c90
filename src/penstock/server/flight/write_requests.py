"""The Flight endpoint's requests about writing: chunks of messages, published once each.

Long work goes a piece at a time, so that peers are served in between.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from penstock.core.commands.publish import PublishRefusal
from penstock.core.commands.write import Portion
from penstock.core.queue import Queue
from penstock.core.writers import ChunkKey
from penstock.flight.calls import Written
from penstock.flight.flight_requests import CHUNK_BYTES, CHUNK_ROWS, CheckWritten, Write
from penstock.server.companions.request_table import Handlers, RequestRefused, yield_to_peers
from penstock.server.flight.lease_requests import MOST_TIME
from penstock.server.network.peers import origin_of
from penstock.server.network.rounds import ROUND
from penstock.server.network.runtime import Runtime
from penstock.server.registry.names import check_name, check_share, check_writer

#: Kokaq, which shows them to consumers, has one byte for the length.
CORRELATION_BYTES = 255


class WriteRequests:
    """Answers them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self.handlers: Handlers = {Write: self._write, CheckWritten: self._check_written}

    async def _check_written(self, request: CheckWritten) -> bool:
        check_writer(self._broker, request.writer, request.owner)
        parts = {partition: (chunks, digest) for partition, chunks, digest in request.parts}
        for _ in self._broker.check_written_in_steps(request.writer, request.epoch, parts):
            await yield_to_peers(self._runtime)
        return True

    async def _write(self, request: Write) -> Written:
        runtime, count = self._runtime, len(request.payloads)
        check_name("writer", request.writer)
        if min(request.epoch, request.partition, request.chunk) < 0:
            raise RequestRefused("bad-request", "epoch, partition and chunk are numbers from 0")
        _check_size(request, runtime.options.limits.payload_bytes)
        while runtime.memory.congested:
            await asyncio.sleep(ROUND)
        check_writer(self._broker, request.writer, request.owner)
        if request.begun and request.writer not in self._broker.writers:
            raise RequestRefused("bad-request", f"writer {request.writer!r} has ended, or was never begun")
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
                raise RequestRefused(
                    "away" if done.refusal is PublishRefusal.DRAINING else "refused", where + done.refusal.value
                )
        await self._runtime.durable()
        return Written(chunk=request.chunk, rows=count, duplicate=duplicate)

    def _portions(self, request: Write) -> list[Portion]:
        """Group the rows by queue, in their order."""
        which = _numbers(request.queue, "u4", "queue", len(request.payloads))
        if which.size != len(request.payloads) or (which.size and int(which.max()) >= len(request.queues)):
            raise RequestRefused("bad-request", "every row has the index of one of the queues")
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

    def _queue(self, request: Write, full_name: str) -> Queue:
        namespace, slash, name = full_name.partition("/")
        found = self._broker.queue(namespace, name)
        if found is not None:
            return found
        if not (namespace and slash and name):
            raise RequestRefused("bad-request", f"a queue is namespace/name, as in default/jobs, not {full_name!r}")
        if not request.create_queues:
            raise RequestRefused(
                "no-queue", f"there is no queue {full_name}: make it first, or write with create_queues"
            )
        creation = self._runtime.creation
        why_not = creation.why_no_queue(namespace, name) or creation.why_not_over_flight(
            origin_of(host_of(request.peer))
        )
        if why_not:
            raise RequestRefused("refused", f"queue {full_name} may not be made: {why_not}")
        now, source = self._runtime.now(), f"flight {request.peer}".rstrip().encode()
        self._broker.create_namespace(namespace, now, source)
        queue = self._broker.create_queue(namespace, name, now, source=source)
        creation.note_over_flight(origin_of(host_of(request.peer)), queue)
        return queue


def host_of(peer: str) -> str:
    """The address of a peer without its port."""
    return peer.rpartition(":")[0].strip("[]") or peer


def _check_size(request: Write, payload_bytes: int) -> None:
    if len(request.payloads) > CHUNK_ROWS:
        rows = len(request.payloads)
        raise RequestRefused("bad-request", f"a chunk has {CHUNK_ROWS} rows at most, not {rows}: send several")
    if request.correlation_ids and len(request.correlation_ids) != len(request.payloads):
        raise RequestRefused("bad-request", "every row has a correlation_id, or none has")
    total = sum(map(len, request.payloads)) + sum(map(len, request.correlation_ids))
    if total > CHUNK_BYTES:
        raise RequestRefused("bad-request", f"a chunk has {CHUNK_BYTES} bytes at most, not {total}: send several")
    largest = max(map(len, request.payloads), default=0)
    if largest > payload_bytes:
        raise RequestRefused(
            "bad-request", f"a payload has {payload_bytes} bytes at most (limits.payload_bytes), not {largest}"
        )
    longest = max(map(len, request.correlation_ids), default=0)
    if longest > CORRELATION_BYTES:
        raise RequestRefused("bad-request", f"a correlation_id has {CORRELATION_BYTES} bytes at most, not {longest}")


def _numbers(data: bytes, kind: str, name: str, rows: int, low: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
    """Decode a column of numbers, which is empty or has one for each row."""
    dtype = np.dtype(f"<{kind}")
    if data and len(data) != rows * dtype.itemsize:
        raise RequestRefused(
            "bad-request", f"{name} has {len(data)} bytes where {rows} rows need {rows * dtype.itemsize}"
        )
    found = np.frombuffer(data, dtype)
    if kind == "i8" and found.size and not low <= int(found.min()) <= int(found.max()) <= MOST_TIME:
        raise RequestRefused("bad-request", f"{name} is {low} to {MOST_TIME} microseconds")
    return found


def _pick(values: list[bytes], rows: np.ndarray[Any, np.dtype[Any]]) -> list[bytes]:
    if not values or len(rows) == len(values):
        return values
    return [values[row] for row in rows.tolist()]
