"""A flipped bit in an old segment: damaged messages are set aside, the sound ones flow, and a file that is put back
brings them back. A message that was never delivered is never removed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from penstock.core.policy import SECOND
from penstock.core.queue import Queue
from penstock.journal.contract import OwnerOptions
from penstock.journal.format.block import HEADER_SIZE
from penstock.journal.format.segment import is_kept
from penstock.server.engine import damaged_messages
from penstock.server.engine.commits import GroupCommit
from penstock.server.logs import Logger
from penstock.server.maintenance.retention import Retention
from penstock.server.maintenance.scrub import Scrub
from penstock.server.network import cold_reads
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.opening import Opened
from support.inprocess import InProcess, Wire
from support.journals import open_folder
from support.raw import (
    ACQUIRE,
    CONFIRM,
    FAIL_INFRA,
    FAIL_OK,
    GET,
    PEEK,
    POP,
    RECEIVE,
    UUID,
    Answer,
    consume,
    kokaq,
    read_answer,
    sspq,
)
from support.retaining import retain
from support.simdisk import SimDisk
from support.workload import MORNING

OPTIONS = OwnerOptions(extent_bytes=2_000, reserve=512)
COUNT = 40
#: These three were published together, so one block contains them.
TOGETHER = (10, 11, 12)


def payload(number: int) -> bytes:
    return b"message %02d " % number + b"." * 60


class Old:
    """The journal of a stopped broker with a backlog, and the places of its messages."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        opened = open_folder(self.disk, MORNING, OPTIONS)
        broker = opened.engine.broker
        broker.create_namespace("default", MORNING)
        queue = broker.create_queue("default", "q", MORNING)
        peer = broker.connect(1, b"test")
        self.positions: dict[int, int] = {}
        for number in range(COUNT):
            if number in TOGETHER[1:]:
                continue
            numbers = TOGETHER if number == TOGETHER[0] else (number,)
            first = broker.publish(peer, queue, [payload(each) for each in numbers], MORNING).first
            self.positions |= zip(numbers, range(first, first + len(numbers)), strict=True)
            opened.engine.commit(MORNING)
        opened.upkeep.checkpoint(MORNING)
        opened.engine.log.close()
        opened = open_folder(self.disk, MORNING, OPTIONS)  # the newest segment is another one
        opened.engine.commit(MORNING)
        place = opened.upkeep.log.locate(self.positions[TOGETHER[0]])
        segments = opened.upkeep.log.extents()
        self.segment = next(each.name for each in reversed(segments) if each.first <= place.first)
        self.offset, self.lost = place.offset, f"{place.first} to {place.end - 1}"
        opened.upkeep.checkpoint(MORNING, clean=True)
        opened.engine.log.close()

    def flip(self, at: int = HEADER_SIZE + 100) -> None:
        """Flip a bit in the block of the three messages; a second call repairs it."""
        self.disk.flip(self.segment, 8 * (self.offset + at))


class Scene(InProcess):
    """A running broker on a journal."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.words = io.StringIO()
        self.failures: list[Exception] = []
        loop = asyncio.get_running_loop()
        self.opened: Opened = open_folder(disk, MORNING, OPTIONS, Retention(bytes=1), min_free=0)
        self.commits = GroupCommit(
            self.opened.engine,
            lambda: cast(None, loop.call_soon_threadsafe(self.runtime.committed)),
            lambda error: cast(None, loop.call_soon_threadsafe(self.failures.append, error)),
        )
        log = Logger(self.words, level="debug", as_json=True)
        self.runtime = Runtime(BrokerOptions(), self.opened.engine, self.commits, log)
        self.runtime.fail = self.failures.append
        self.scrub = Scrub(self.runtime, self.opened.upkeep.log)
        self.commits.start()

    @property
    def backlog(self) -> Queue:
        queue = self.runtime.broker.queue("default", "q")
        assert queue is not None
        return queue

    async def settle(self) -> None:
        self.runtime.touched()
        for _ in range(1000):
            await asyncio.sleep(0.002)
            if self.runtime.broker.committed == self.runtime.broker.log.next_position:
                break
        for _ in range(5):
            await asyncio.sleep(0.002)

    async def ask(self, opcode: int, queue: str | None = "default/q", **more: object) -> Answer:
        session, wire = self.kokaq()
        session.data_received(kokaq(opcode, queue, **more))  # type: ignore[arg-type]
        await self.settle()
        return answers(wire)[0]


class _Reader:
    """Lets ``read_answer`` read from bytes instead of a Peer."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        data, self.data = self.data[:size], self.data[size:]
        return data

    def expect(self, *parts: bytes) -> None:
        assert self.read(len(b"".join(parts))) == b"".join(parts)


def answers(wire: Wire) -> list[Answer]:
    reader, answers = _Reader(wire.sent), []
    while reader.data:
        answers.append(read_answer(cast(object, reader)))  # type: ignore[arg-type]
    return answers


@asynccontextmanager
async def broker_on(old: Old) -> AsyncIterator[Scene]:
    scene = Scene(old.disk)
    try:
        yield scene
        assert not scene.failures
        scene.runtime.broker.check()
    finally:
        await scene.scrub.stop()
        await scene.scrub.finish()
        scene.runtime.stop()
        scene.commits.close(MORNING)
        scene.opened.engine.log.close()


def play(old: Old, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with broker_on(old) as scene:
            await story(scene)

    asyncio.run(asyncio.wait_for(run(), 60))


async def by_window(scene: Scene) -> bytes:
    session, wire = scene.phpmq()
    session.data_received(consume("q", 1000))
    await scene.settle()
    return wire.sent


async def by_receives(scene: Scene) -> bytes:
    session, wire = scene.sspq("default/q")
    for _ in range(COUNT):
        session.data_received(sspq(RECEIVE))
        await scene.settle()
        session.data_received(sspq(CONFIRM))
    await scene.settle()
    return wire.sent


async def by_pops(scene: Scene) -> bytes:
    session, wire = scene.kokaq()
    session.data_received(b"".join(kokaq(POP, "default/q") for _ in range(COUNT)))
    await scene.settle()
    assert [each.outcome for each in answers(wire)[-3:]] == [FAIL_OK] * 3  # nothing is left to receive
    return wire.sent


async def by_locks(scene: Scene) -> bytes:
    session, wire = scene.kokaq()
    session.data_received(b"".join(kokaq(ACQUIRE, "default/q") for _ in range(COUNT)))
    await scene.settle()
    return wire.sent


@pytest.mark.parametrize("take", [by_window, by_receives, by_pops, by_locks])
def test_the_sound_messages_flow(take: Callable[[Scene], Awaitable[bytes]]) -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        sent = await take(scene)
        order = sorted((sent.find(payload(number)), number) for number in range(COUNT) if number not in TOGETHER)
        assert [number for _, number in order] == [number for number in range(COUNT) if number not in TOGETHER]
        assert order[0][0] >= 0
        queue = scene.backlog
        assert sorted(queue.damaged) == [old.positions[number] for number in TOGETHER]
        assert queue.counters.popped == (COUNT - len(TOGETHER) if take is by_pops else 0)
        assert not scene.events("error in a session")
        logged = scene.events("damaged messages are set aside; put the file back, or give them up by a repair")
        first, last = old.positions[TOGETHER[0]], old.positions[TOGETHER[-1]]
        assert [(each["first"], each["last"], each["lost"]) for each in logged] == [(first, last, old.lost)]
        assert f"{old.segment}, byte {old.offset}: the body's checksum is wrong" in logged[0]["reason"]

    play(old, story)


def test_a_damaged_header_costs_its_block_and_no_more() -> None:
    old = Old()
    old.flip(16)

    async def story(scene: Scene) -> None:
        sent = await by_pops(scene)
        assert [n for n in range(COUNT) if payload(n) not in sent] == list(TOGETHER)

    play(old, story)


def test_set_aside_messages_are_visible_and_not_delivered() -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        for number in range(TOGETHER[0]):
            assert (await scene.ask(POP)).payload == payload(number)
        assert (await scene.ask(PEEK)).payload == payload(TOGETHER[-1] + 1)
        uuid = scene.runtime.ids.raw(scene.backlog, old.positions[TOGETHER[0]])
        answer = await scene.ask(GET, fields={UUID: uuid})
        assert (answer.outcome, answer.payload) == (FAIL_INFRA, None)
        facts = await scene.ask(GET, None, type_byte=0x42)
        assert b"damaged=3" in b"".join(facts.fields.values())

    play(old, story)


def test_a_request_passes_much_damage_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is read and set aside in a separate turn."""
    monkeypatch.setattr(damaged_messages, "NEIGHBOURS", 1)
    monkeypatch.setattr(cold_reads, "HEADS", 2)
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        for number in range(TOGETHER[0]):
            assert (await scene.ask(POP)).payload == payload(number)
        assert (await scene.ask(POP)).payload == payload(TOGETHER[-1] + 1)
        assert scene.runtime.broker.damaged == len(TOGETHER)
        assert len(scene.events("damaged messages are set aside; put the file back, or give them up by a repair")) > 1

    play(old, story)


def test_the_scrub_finds_damage_before_any_request() -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        scene.scrub.start()
        while scene.runtime.broker.damaged < len(TOGETHER):
            await asyncio.sleep(0.005)
        assert sorted(scene.backlog.damaged) == [old.positions[number] for number in TOGETHER]
        (logged,) = scene.events("the journal is damaged")
        assert logged["place"] == f"{old.segment}, byte {old.offset}"

    play(old, story)


def test_a_file_that_is_put_back_brings_them_back() -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        await by_pops(scene)
        await scene.scrub.check_again()
        assert scene.runtime.broker.damaged == len(TOGETHER)  # it is damaged as before
        old.flip()
        await scene.scrub.check_again()
        assert scene.runtime.broker.damaged == 0
        sent = await by_pops(scene)
        assert [number for number in range(COUNT) if payload(number) in sent] == list(TOGETHER)

    play(old, story)


def test_a_start_brings_them_back_too() -> None:
    old = Old()
    old.flip()

    async def first(scene: Scene) -> None:
        await by_pops(scene)

    play(old, first)
    old.flip()

    async def story(scene: Scene) -> None:
        sent = await by_pops(scene)
        assert [number for number in range(COUNT) if payload(number) in sent] == list(TOGETHER)

    play(old, story)


def test_upkeep_goes_on_and_keeps_the_damaged_segment() -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        for _ in range(COUNT - 12):
            await scene.ask(POP)
        upkeep = scene.opened.upkeep
        before = upkeep.log.start
        for _ in range(3):  # each writes a checkpoint, and nothing that the older one needs is trimmed
            retain(upkeep, MORNING)
        assert upkeep.log.start > before
        assert upkeep.log.start > old.positions[TOGETHER[-1]]
        (kept,) = filter(is_kept, scene.disk.seen)
        assert kept.startswith(old.segment)
        sent = await by_pops(scene)
        assert payload(COUNT - 1) in sent
        assert scene.runtime.broker.damaged == len(TOGETHER)

    play(old, story)
    (kept,) = filter(is_kept, old.disk.seen)

    async def later(scene: Scene) -> None:
        await by_pops(scene)
        assert scene.runtime.broker.damaged == len(TOGETHER)
        scene.disk.flip(kept, 8 * (old.offset + HEADER_SIZE + 100))
        await scene.scrub.check_again()
        sent = await by_pops(scene)
        assert all(payload(number) in sent for number in TOGETHER)
        for _ in range(40):  # something that can be trimmed
            scene.runtime.broker.create_namespace(f"n{_}" * 50, MORNING)
            scene.opened.engine.commit(MORNING)
        for _ in range(3):
            retain(scene.opened.upkeep, MORNING)
        assert not list(filter(is_kept, scene.disk.seen))

    play(old, later)


def test_a_lease_is_settled_without_unreadable_messages() -> None:
    old = Old()
    old.flip()

    async def story(scene: Scene) -> None:
        broker, queue = scene.runtime.broker, scene.backlog
        lease = broker.lease("reader", queue, scene.runtime.now(), 1000 * SECOND)
        assert lease is not None
        for segment in scene.opened.upkeep.log.extents()[:-1]:
            await scene.scrub.check(segment)
        assert len(lease.messages) == COUNT - len(TOGETHER)
        assert broker.settle_lease(lease, scene.runtime.now()) == COUNT - len(TOGETHER)
        assert (queue.counters.acknowledged, len(queue.damaged)) == (COUNT - len(TOGETHER), len(TOGETHER))

    play(old, story)
    old.flip()

    async def later(scene: Scene) -> None:
        sent = await by_pops(scene)
        assert [number for number in range(COUNT) if payload(number) in sent] == list(TOGETHER)

    play(old, later)
