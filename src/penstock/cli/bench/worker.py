"""A process of the load generator: all its producers, or all its consumers, on one event loop."""

from __future__ import annotations

import asyncio
import time
from ctypes import Array
from multiprocessing.connection import Connection as Pipe
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from penstock.cli.bench.talk import CONSUMERS, PRODUCERS, Talk
from penstock.cli.output import run
from penstock.client.options import TLS
from penstock.client.urls import Address

TalkT = TypeVar("TalkT", bound=Talk)

#: What one write of a producer has at most: a client that pipelines does not send each message by itself either.
WRITE_MESSAGES = 64
WRITE_BYTES = 16 * 1024
#: How long a producer that may not send looks away.
BREATH = 0.0005

#: The board on which processes tell each other how far they are. Each place has one writer. A process that is not yet
#: connected has NOT_READY at its place, and later how many messages it has sent or received.
NOT_READY = -1
GO, PRODUCE, CONSUME, FIRST_WORKER = 0, 1, 2, 3


class Job(Struct, frozen=True, kw_only=True):
    """What a process is to do."""

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


class Outcome(Struct):
    """What a process has to tell at its end. Latencies are in nanoseconds."""

    done: int
    latencies: Any
    error: str = ""


def produce(job: Job, board: Array[Any], pipe: Pipe) -> None:
    """The life of a process of producers."""
    _live(_produce(job, board), pipe)


def consume(job: Job, board: Array[Any], pipe: Pipe) -> None:
    """The life of a process of consumers."""
    _live(_consume(job, board), pipe)


def _live(work: Any, pipe: Pipe) -> None:
    try:
        outcome = run(work)
    except KeyboardInterrupt:
        return
    except Exception as error:
        outcome = Outcome(0, np.zeros(0, np.int64), f"{type(error).__name__}: {error}")
    pipe.send(outcome)


async def _produce(job: Job, board: Array[Any]) -> Outcome:
    make = PRODUCERS[job.address.protocol]
    talks = [await _open(make(job.address, job.size, job.window), job) for _ in range(job.connections)]
    board[job.place] = 0
    await _until(board, GO)
    began = time.monotonic()
    at_once = max(1, min(WRITE_MESSAGES, WRITE_BYTES // job.size))
    sent = 0
    while board[PRODUCE] and (job.count is None or sent < job.count):
        before = sent
        for talk in talks:
            count = min(talk.room(), at_once, _allowed(job, board, sent, time.monotonic() - began))
            if count > 0:
                talk.send(count)
                sent += count
                board[job.place] = sent
        _check(talks)
        await asyncio.sleep(0 if sent > before else BREATH)
    while any(talk.room() < talk.window for talk in talks if talk.lost is None) and board[CONSUME]:
        await asyncio.sleep(BREATH)
    latencies = np.concatenate([np.array(talk.latencies, np.int64) for talk in talks])
    for talk in talks:
        talk.close()
    await asyncio.sleep(0.05)  # what is in our buffers leaves
    return Outcome(sent, latencies)


def _allowed(job: Job, board: Array[Any], sent: int, elapsed: float) -> int:
    """How many more may be sent, by all limits but the connection's."""
    under_way = sum(board[place] for place in job.senders) - sum(board[place] for place in job.receivers)
    allowed = job.in_flight - under_way if job.in_flight else WRITE_MESSAGES
    if job.count is not None:
        allowed = min(allowed, job.count - sent)
    if job.rate is not None:
        allowed = min(allowed, int(elapsed * job.rate) - sent)
    return allowed


async def _consume(job: Job, board: Array[Any]) -> Outcome:
    make = CONSUMERS[job.address.protocol]
    talks = [await _open(make(job.address, job.window), job) for _ in range(job.connections)]
    while board[CONSUME]:
        await asyncio.sleep(0.001)
        board[job.place] = sum(talk.received for talk in talks)
        _check(talks)
    for talk in talks:
        talk.close()
    latencies = np.concatenate([np.array(talk.latencies, np.int64) for talk in talks])
    return Outcome(sum(talk.received for talk in talks), latencies)


def _check(talks: list[Any]) -> None:
    for talk in talks:
        if talk.lost is not None:
            raise talk.lost


async def _until(board: Array[Any], place: int) -> None:
    while not board[place]:
        await asyncio.sleep(BREATH)


async def _open(talk: TalkT, job: Job) -> TalkT:
    loop = asyncio.get_running_loop()
    address = job.address
    if address.path:
        await loop.create_unix_connection(lambda: talk, address.path)
    elif address.use_tls:
        name = job.tls.server_name or address.host
        context = job.tls.context()
        await loop.create_connection(lambda: talk, address.host, address.port, ssl=context, server_hostname=name)
    else:
        await loop.create_connection(lambda: talk, address.host, address.port)
    return talk
