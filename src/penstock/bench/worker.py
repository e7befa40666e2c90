"""A process of the load generator: all its producers, or all its consumers, on one event loop."""

from __future__ import annotations

import asyncio
import signal
import time
from ctypes import Array
from multiprocessing import parent_process
from multiprocessing.connection import Connection as Pipe
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from penstock.bench.load import LoadConnection, load_of
from penstock.client.event_loop import run
from penstock.client.options import TLS
from penstock.client.urls import Address
from penstock.companions.parent import end_with

ConnectionT = TypeVar("ConnectionT", bound=LoadConnection)

#: The most messages and bytes of one write of a producer: pipelining clients also write several messages at once.
WRITE_MESSAGES = 64
WRITE_BYTES = 16 * 1024
#: Seconds that a producer without room waits.
PAUSE = 0.0005

#: Places of the board, an array on which processes share their progress. Each place has one writer. A worker's place
#: is NOT_READY until it is connected, and then the number of messages that it has sent or received.
NOT_READY = -1
GO, PRODUCE, CONSUME, FIRST_WORKER = 0, 1, 2, 3


class WorkerJob(Struct, frozen=True, kw_only=True):
    """The work of one process."""

    address: Address
    tls: TLS
    place: int
    connections: int
    window: int
    size: int = 0
    count: int | None = None
    rate: float | None = None
    in_flight: int = 0
    senders: tuple[int, ...] = ()
    receivers: tuple[int, ...] = ()


class WorkerOutcome(Struct):
    """The result of one process. Latencies are in nanoseconds."""

    done: int
    latencies: Any
    error: str = ""


def produce(job: WorkerJob, board: Array[Any], pipe: Pipe) -> None:
    """The main function of a process of producers."""
    _run_and_report(_produce(job, board), pipe)


def consume(job: WorkerJob, board: Array[Any], pipe: Pipe) -> None:
    """The main function of a process of consumers."""
    _run_and_report(_consume(job, board), pipe)


def _run_and_report(work: Any, pipe: Pipe) -> None:
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    end_with(parent.pid, signal.SIGKILL)  # the result has no reader then
    try:
        outcome = run(work)
    except KeyboardInterrupt:
        return
    except Exception as error:
        outcome = WorkerOutcome(0, np.zeros(0, np.int64), f"{type(error).__name__}: {error}")
    pipe.send(outcome)


async def _produce(job: WorkerJob, board: Array[Any]) -> WorkerOutcome:
    make = load_of(job.address.scheme).producer
    connections = [await _open(make(job.address, job.size, job.window), job) for _ in range(job.connections)]
    board[job.place] = 0
    await _until(board, GO)
    began = time.monotonic()
    at_once = max(1, min(WRITE_MESSAGES, WRITE_BYTES // job.size))
    sent = 0
    while board[PRODUCE] and (job.count is None or sent < job.count):
        before = sent
        for connection in connections:
            count = min(connection.room(), at_once, _allowed(job, board, sent, time.monotonic() - began))
            if count > 0:
                connection.send(count)
                sent += count
                board[job.place] = sent
        _check(connections)
        await asyncio.sleep(0 if sent > before else PAUSE)
    while (
        any(connection.room() < connection.window for connection in connections if connection.lost is None)
        and board[CONSUME]
    ):
        await asyncio.sleep(PAUSE)
    latencies = np.concatenate([np.array(connection.latencies, np.int64) for connection in connections])
    for connection in connections:
        connection.close()
    await asyncio.sleep(0.05)  # buffers are flushed
    return WorkerOutcome(sent, latencies)


def _allowed(job: WorkerJob, board: Array[Any], sent: int, elapsed: float) -> int:
    """The number of messages that all limits except the connection's allow to send now."""
    in_flight = sum(board[place] for place in job.senders) - sum(board[place] for place in job.receivers)
    allowed = job.in_flight - in_flight if job.in_flight else WRITE_MESSAGES
    if job.count is not None:
        allowed = min(allowed, job.count - sent)
    if job.rate is not None:
        allowed = min(allowed, int(elapsed * job.rate) - sent)
    return allowed


async def _consume(job: WorkerJob, board: Array[Any]) -> WorkerOutcome:
    make = load_of(job.address.scheme).consumer
    connections = [await _open(make(job.address, job.window), job) for _ in range(job.connections)]
    while board[CONSUME]:
        await asyncio.sleep(0.001)
        board[job.place] = sum(connection.received for connection in connections)
        _check(connections)
    for connection in connections:
        connection.close()
    latencies = np.concatenate([np.array(connection.latencies, np.int64) for connection in connections])
    return WorkerOutcome(sum(connection.received for connection in connections), latencies)


def _check(connections: list[Any]) -> None:
    for connection in connections:
        if connection.lost is not None:
            raise connection.lost


async def _until(board: Array[Any], place: int) -> None:
    while not board[place]:
        await asyncio.sleep(PAUSE)


async def _open(connection: ConnectionT, job: WorkerJob) -> ConnectionT:
    loop = asyncio.get_running_loop()
    address = job.address
    if address.path:
        await loop.create_unix_connection(lambda: connection, address.path)
    elif address.use_tls:
        name = address.server_name or address.host
        context = job.tls.context()
        await loop.create_connection(lambda: connection, address.host, address.port, ssl=context, server_hostname=name)
    else:
        await loop.create_connection(lambda: connection, address.host, address.port)
    return connection
