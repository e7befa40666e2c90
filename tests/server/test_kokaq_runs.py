"""Kokaq requests that arrive together, as runs, are answered like the same requests one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from penstock.core.policy import SECOND
from penstock.server.protocols.kokaq.message_requests import RUN
from penstock.wire import kokaq
from penstock.wire.kokaq import MessageType, Metadata, Opcode, Reason, Request, Response, Status
from support.inprocess import InProcess, running

#: Fields that depend on the clock, and so differ from run to run.
TIMES = ("created_at", "expires_at", "modified_at", "handling_time", "time_to_live")


@dataclass(frozen=True)
class Step:
    """Requests that a peer sends together. ``uuids`` index messages in the order of their delivery."""

    opcode: Opcode
    count: int
    payload: bytes = b""
    metadata: Metadata | None = None
    pick: tuple[int, ...] = ()


def requests(step: Step, given: Sequence[bytes], first: int) -> list[Request]:
    """The step's requests, with distinct opaques."""
    built = []
    for number in range(step.count):
        metadata = step.metadata
        if step.pick:
            uuid = given[step.pick[number] % len(given)] if given else bytes(16)
            metadata = replace(metadata or Metadata(), uuid=uuid)
        opaque = (first + number).to_bytes(4, "big")
        head = MessageType.OPERATIONAL, True, opaque, step.opcode, 1, number % 3, metadata
        names = ("default", "jobs", step.payload) if step.opcode is not Opcode.DELETE else (None, None, None)
        built.append(Request(*head, *names))
    return built


async def talk(broker: InProcess, steps: Sequence[Step], *, together: bool) -> list[Response]:
    """The answers to all steps, without times."""
    session, wire = broker.kokaq()
    decoder, whole = kokaq.ClientDecoder(), kokaq.Reassembler()
    answers: list[Response] = []
    given: list[bytes] = []
    for step in steps:
        asked = requests(step, given, len(answers))
        parts = [asked] if together else [[request] for request in asked]
        for part in parts:
            session.data_received(kokaq.encode_requests(part))
        for _ in range(100):
            await broker.settle()
            answers += kokaq.singles(whole.feed(decoder.feed(wire.sent)))
            wire.writes.clear()
            if len(answers) >= sum(each.count for each in steps[: steps.index(step) + 1]):
                break
        if step.opcode is Opcode.ACQUIRE_PEEK_LOCK:
            given += [each.metadata.uuid for each in answers if each.metadata and each.metadata.uuid and each.payload]
    assert not broker.failures
    broker.runtime.broker.check()
    return _comparable(answers)


def _comparable(answers: Sequence[Response]) -> list[Response]:
    """Without times, and with UUIDs replaced by numbers in order of appearance."""
    met: dict[bytes, bytes] = {}

    def timeless(metadata: Metadata) -> Metadata:
        named = met.setdefault(metadata.uuid, len(met).to_bytes(16, "big")) if metadata.uuid else None
        return replace(metadata, **dict.fromkeys(TIMES), uuid=named)

    return [replace(each, metadata=timeless(each.metadata)) if each.metadata else each for each in answers]


def random_steps(seed: int) -> list[Step]:
    drawn = random.Random(seed)
    steps = [Step(Opcode.PUSH, drawn.randrange(1, 60), b"x" * drawn.choice([0, 10, 100]))]
    for _ in range(drawn.randrange(2, 8)):
        count = drawn.choice([1, 2, 5, 30])
        opcode = drawn.choice([Opcode.PUSH, Opcode.ACQUIRE_PEEK_LOCK, Opcode.POP, Opcode.DELETE, Opcode.DELETE])
        metadata = None
        if opcode is Opcode.PUSH:
            metadata = drawn.choice([None, None, Metadata(priority=5), Metadata(correlation_id=b"c", source="me")])
        elif opcode is Opcode.ACQUIRE_PEEK_LOCK:
            metadata = drawn.choice([None, Metadata(lock_duration=60_000)])
        pick = tuple(drawn.randrange(40) for _ in range(count)) if opcode is Opcode.DELETE else ()
        if pick and drawn.random() < 0.6:
            pick = tuple(range(count))
        steps.append(Step(opcode, count, b"", metadata, pick))
    return [*steps, Step(Opcode.POP, 70)]


@pytest.mark.parametrize("seed", range(25))
def test_together_as_one_by_one(seed: int) -> None:
    steps = random_steps(seed)

    async def both() -> None:
        answers = []
        for together in (True, False):
            async with running(messages_out=20) as broker:
                broker.queue("jobs")
                answers.append(await talk(broker, steps, together=together))
        assert answers[0] == answers[1]

    asyncio.run(both())


@pytest.mark.parametrize("opcode", [Opcode.ACQUIRE_PEEK_LOCK, Opcode.POP])
def test_each_message_of_a_run_shows_its_own_times_and_source(opcode: Opcode) -> None:
    async def story() -> None:
        async with running() as broker:
            queue, now = broker.queue("jobs", lock=60 * SECOND), broker.runtime.now()
            peers = [broker.phpmq()[0].connection, broker.sspq()[0].connection]
            later = [0, 0, 1, 1, 7, 7, SECOND, SECOND, SECOND + 1, 5 * SECOND, 5 * SECOND, 5 * SECOND]
            published = []
            for number, after in enumerate(later):
                peer = peers[number // 2 % 2]
                done = broker.runtime.broker.publish(peer, queue, [b"x"], now + after)
                published.append((now + after, broker.runtime.ids.raw(queue, done.first), peer.source.decode()))
            session, wire = broker.kokaq()
            begun = broker.runtime.now()
            session.data_received(kokaq.encode_requests(requests(Step(opcode, len(later)), [], 0)))
            await broker.settle()
            received = [each.metadata for each in kokaq.singles(kokaq.ClientDecoder().feed(wire.sent))]
            ended = broker.runtime.now()
            assert [(each.modified_at, each.uuid, each.source) for each in received if each] == [
                (at * 1000, raw, source) for at, raw, source in published
            ]
            assert [each.created_at for each in received if each] == [at // SECOND for at, _, _ in published]
            for each in filter(None, received):
                assert each.handling_time is not None
                assert each.handling_time <= ended - begun
                if opcode is Opcode.POP:
                    assert (each.expires_at, each.version) == (None, 1)
                else:
                    assert each.expires_at in {-(-(at + 60 * SECOND) // SECOND) for at in (begun, ended)}

    asyncio.run(story())


def test_many_requests_in_one_read() -> None:
    count = 3 * RUN + 7

    async def story() -> None:
        async with running() as broker:
            broker.queue("jobs")
            steps = [
                Step(Opcode.PUSH, count, b"x" * 50),
                Step(Opcode.ACQUIRE_PEEK_LOCK, count),
                Step(Opcode.DELETE, count, pick=tuple(range(count))),
                Step(Opcode.POP, 2),
            ]
            answers = await talk(broker, steps, together=True)
            assert [answer.opaque for answer in answers] == [n.to_bytes(4, "big") for n in range(3 * count + 2)]
            assert {answer.status for answer in answers[: 3 * count]} == {Status.SUCCESS}
            assert {(answer.status, answer.reason) for answer in answers[3 * count :]} == {(Status.FAIL, Reason.OK)}
            uuids = [answer.metadata and answer.metadata.uuid for answer in answers[:count]]
            assert [answer.metadata and answer.metadata.uuid for answer in answers[count : 2 * count]] == uuids

    asyncio.run(story())


def test_large_messages_of_a_run_come_in_pieces() -> None:
    async def story() -> None:
        async with running() as broker:
            queue, now = broker.queue("jobs"), broker.runtime.now()
            sizes = [10, 70_000, 20, 200_000, 0]
            session, _ = broker.phpmq()
            for size in sizes:
                broker.runtime.broker.publish(session.connection, queue, [b"x" * size], now)
            answers = await talk(broker, [Step(Opcode.ACQUIRE_PEEK_LOCK, len(sizes) + 1)], together=True)
            assert [len(answer.payload or b"") for answer in answers[:-1]] == sizes
            assert [answer.status for answer in answers] == [Status.SUCCESS] * len(sizes) + [Status.FAIL]

    asyncio.run(story())


def test_settlements_read_before_a_disconnect_count() -> None:
    async def story() -> None:
        async with running() as broker:
            queue = broker.queue("jobs")
            session, wire = broker.kokaq()
            sent = [
                *requests(Step(Opcode.PUSH, 10, b"x"), [], 0),
                *requests(Step(Opcode.ACQUIRE_PEEK_LOCK, 10), [], 10),
            ]
            session.data_received(kokaq.encode_requests(sent))
            await broker.settle()
            answers = list(kokaq.singles(kokaq.ClientDecoder().feed(wire.sent)))[10:]
            given = [answer.metadata.uuid for answer in answers if answer.metadata and answer.metadata.uuid]
            broker.runtime.memory.congested = True  # so that the request waits in the inbox
            session.data_received(
                kokaq.encode_requests(requests(Step(Opcode.DELETE, 8, pick=tuple(range(8))), given, 20))
            )
            session.connection_lost(None)
            broker.runtime.memory.congested = False
            await broker.settle()
            assert (len(queue.ready), len(queue.out), queue.counters.acknowledged) == (2, 0, 8)

    asyncio.run(story())
