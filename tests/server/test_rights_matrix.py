"""Every request of every protocol, from peers with each right and with none.

The requests are derived from the code, so a new opcode, message type or frame fails here until its right is decided.
Without a right nothing happens, and responses reveal only that the broker is there, not whether a resource exists.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import pytest
from msgspec.structs import replace

from penstock.companions.rights import Right
from penstock.server.network.access import Peer
from penstock.server.network.session import Session
from penstock.server.options.broker_options import AccessRule
from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.kokaq import MessageType, Metadata, Opcode, Request
from support.inprocess import InProcess, Wire, running
from support.raw import FAIL_BAD, FAIL_NOT_ALLOWED, SUCCESS_OK

RIGHTS: tuple[Right, ...] = get_args(Right)
#: The protocols here carry no token, so this rule applies to no peer.
NO_RIGHT = AccessRule(token_sha256="0" * 64, may=list(RIGHTS))
#: Names of a queue that exists, and of one that does not.
HERE, GONE = "here", "gone"
OPAQUE = b"\0\0\0\1"


class Response(NamedTuple):
    """The bytes that a peer received, and whether the broker closed the connection."""

    sent: bytes
    closed: bool


class Rig:
    """A broker with one queue that contains a waiting and a dead message."""

    def __init__(self, broker: InProcess, *rules: AccessRule) -> None:
        self.broker = broker
        core, now = broker.runtime.broker, broker.runtime.now()
        queue = broker.queue(HERE)
        maker = core.connect(10**9, b"the test")
        first = core.publish(maker, queue, [b"secret", b"dead"], now).first
        core.receive(maker, queue, now)
        core.reject(maker, queue, [first], now)
        self.known = broker.runtime.ids.raw(queue, first + 1)
        self.unknown = broker.runtime.ids.raw(queue, first + 1_000_000)
        broker.runtime.options = replace(broker.runtime.options, access=list(rules))

    def id(self, queue: str) -> bytes:
        """The ID of a message in the queue that exists; for the other, an ID of no message."""
        return self.known if queue == HERE else self.unknown

    async def send(self, *said: tuple[Callable[[], tuple[Session[Any], Wire]], bytes]) -> list[Response]:
        """Open a connection for each request, and send it."""
        wires = []
        for meet, data in said:
            session, wire = meet()
            assert session.peer == Peer("192.0.2.7", port=4711)
            session.data_received(data)
            wires.append(wire)
        await self.broker.settle()
        return [Response(wire.sent, wire.closed) for wire in wires]

    @property
    def position(self) -> int:
        """Changes with everything that happens."""
        return self.broker.runtime.broker.log.next_position


def inside(rules: list[AccessRule], test: Callable[[Rig], Any]) -> Any:
    async def main() -> Any:
        async with running(connections_per_address=10_000) as broker:
            rig = Rig(broker, *rules)
            await broker.settle()
            result = await test(rig)
            assert broker.failures == []
            return result

    return asyncio.run(main())


def role(right: Right) -> AccessRule:
    return AccessRule(may=[right], where=[f"default/{HERE}"])


# Kokaq


class Shape(NamedTuple):
    """A kind of request."""

    opcode: Opcode
    kind: MessageType
    two_way: bool
    names: str
    with_id: bool


SHAPES = [
    shape
    for each in itertools.product(Opcode, MessageType, (True, False), ("", "n", "nq"), (True, False))
    if (shape := Shape(*each)).opcode is not Opcode.NOP or not (shape.names or shape.with_id)  # a Nop has no components
]


def kokaq_bytes(shape: Shape, queue: str, uuid: bytes) -> bytes:
    request = Request(
        shape.kind, shape.two_way, OPAQUE, shape.opcode,
        metadata=Metadata(uuid=uuid) if shape.with_id else None,
    )  # fmt: skip
    if shape.names == "n":
        request = replace(request, namespace="default" if queue == HERE else "nowhere", queue="", payload=b"")
    elif shape.names:
        request = replace(request, namespace="default", queue=queue, payload=b"")
    return kokaq.encode_requests([request])


def outcome(response: Response) -> int:
    """The outcome byte of an answer."""
    assert response.sent[:3] == b"\x04\x20\x01"
    return response.sent[9]


def test_kokaq_without_a_right() -> None:
    async def test(rig: Rig) -> None:
        before = rig.position
        said = [
            (rig.broker.kokaq, kokaq_bytes(shape, queue, rig.id(queue))) for shape in SHAPES for queue in (HERE, GONE)
        ]
        responses = await rig.send(*said)
        assert rig.position == before
        for shape, here, gone in zip(SHAPES, responses[::2], responses[1::2], strict=True):
            assert here == gone, f"{shape} reveals whether the queue exists"
            assert len(here.sent) == (12 if shape.two_way else 0), f"{shape} is answered with more than its outcome"
            if shape.two_way and shape.opcode is Opcode.NOP:
                assert outcome(here) == SUCCESS_OK
            elif shape.two_way:
                assert outcome(here) in (FAIL_NOT_ALLOWED, FAIL_BAD), shape

    inside([NO_RIGHT], test)


#: Any one of these rights is needed for a plain two-way request about the queue. None: no right is needed.
KOKAQ_NEEDS: dict[Opcode, set[Right] | None] = {
    Opcode.NOP: None,
    Opcode.CREATE: {"administer"},
    Opcode.DELETE: {"administer"},
    Opcode.GET: {"consume"},
    Opcode.PEEK: {"consume"},
    Opcode.POP: {"consume"},
    Opcode.PUSH: {"publish"},
    Opcode.ACQUIRE_PEEK_LOCK: {"consume"},
    Opcode.RELEASE_PEEK_LOCK: None,  # the holder of a lock had the right to acquire it
}


@pytest.mark.parametrize("right", RIGHTS)
def test_kokaq_with_one_right(right: Right) -> None:
    assert set(KOKAQ_NEEDS) == set(Opcode)

    async def test(rig: Rig) -> None:
        for opcode, needs in KOKAQ_NEEDS.items():
            for queue in (HERE, "forbidden"):
                names = "" if opcode is Opcode.NOP else "nq"
                shape = Shape(opcode, MessageType.OPERATIONAL, True, names, False)
                [response] = await rig.send((rig.broker.kokaq, kokaq_bytes(shape, queue, b"")))
                denied = needs is not None and not (right in needs and queue == HERE)
                not_empty = opcode is Opcode.DELETE and queue == HERE  # that is not allowed either
                assert (outcome(response) == FAIL_NOT_ALLOWED) == (denied or not_empty), (opcode, queue)

    inside([role(right)], test)


@pytest.mark.parametrize("right", RIGHTS)
def test_kokaq_requests_about_all_queues(right: Right) -> None:
    """Totals need the right to all queues; an ID without a queue name finds only messages in permitted queues."""
    totals = Shape(Opcode.GET, MessageType.CONTROL, True, "", False)
    message = Shape(Opcode.GET, MessageType.OPERATIONAL, True, "", True)

    async def test(rig: Rig) -> list[int]:
        said = [kokaq_bytes(totals, HERE, b""), kokaq_bytes(message, HERE, rig.known)]
        return list(map(outcome, await rig.send(*((rig.broker.kokaq, each) for each in said))))

    no, bad, ok = FAIL_NOT_ALLOWED, FAIL_BAD, SUCCESS_OK
    narrow = AccessRule(may=[right], where=["default/another"])
    assert inside([narrow], test) == [no, bad if right == "consume" else no]
    everywhere = inside([AccessRule(may=[right])], test)
    assert everywhere == [ok if right in ("consume", "administer") else no, ok if right == "consume" else no]


# PHPMQ

PHPMQ_SAMPLES: dict[type, Callable[[str, bytes], phpmq.PhpmqFrame]] = {
    phpmq.Publish: lambda queue, uuid: phpmq.Publish(queue, (b"x",), None),
    phpmq.Consume: lambda queue, uuid: phpmq.Consume(queue, 5),
    phpmq.Dispatch: lambda queue, uuid: phpmq.Dispatch(queue, (uuid,), (b"x",), (0,)),
    phpmq.Acknowledge: lambda queue, uuid: phpmq.Acknowledge(queue, (uuid,)),
    phpmq.Requeue: lambda queue, uuid: phpmq.Requeue(queue, uuid, 0),
    phpmq.Reject: lambda queue, uuid: phpmq.Reject(queue, (uuid,)),
}
PHPMQ_NEEDS: dict[type, set[Right]] = {phpmq.Publish: {"publish"}, phpmq.Consume: {"consume"}}


def phpmq_bytes(kind: type, queue: str, uuid: bytes) -> bytes:
    return phpmq.encode([PHPMQ_SAMPLES[kind](queue, uuid.hex().encode())], phpmq.Style())


def test_phpmq_without_a_right() -> None:
    assert set(PHPMQ_SAMPLES) == set(get_args(phpmq.PhpmqFrame))

    async def test(rig: Rig) -> None:
        before = rig.position
        for kind in PHPMQ_SAMPLES:
            said = [(rig.broker.phpmq, phpmq_bytes(kind, queue, rig.id(queue))) for queue in (HERE, GONE)]
            here, gone = await rig.send(*said)
            assert here == gone, kind
            assert here.sent == b"", kind
        assert rig.position == before

    inside([NO_RIGHT], test)


@pytest.mark.parametrize("right", RIGHTS)
def test_phpmq_with_one_right(right: Right) -> None:
    async def test(rig: Rig) -> None:
        for kind in PHPMQ_SAMPLES:
            for queue in (HERE, GONE):
                before = rig.broker.runtime.counters["denied"]
                await rig.send((rig.broker.phpmq, phpmq_bytes(kind, queue, rig.known)))
                denied = rig.broker.runtime.counters["denied"] > before
                needs = PHPMQ_NEEDS.get(kind)
                assert denied == (needs is not None and not (right in needs and queue == HERE)), (kind, queue)

    inside([role(right)], test)


# SSPQ

SSPQ_SAMPLES: dict[type, sspq.SspqFrame] = {
    sspq.Send: sspq.Send(3, (b"x",)),
    sspq.Receive: sspq.Receive(),
    sspq.Confirm: sspq.Confirm(),
    sspq.DeadReceive: sspq.DeadReceive(),
    sspq.NoReceive: sspq.NoReceive(),
    sspq.Other: sspq.Other(0x77),
}
SSPQ_NEEDS: dict[type, set[Right]] = {
    sspq.Send: {"publish"},
    sspq.Receive: {"consume"},
    sspq.DeadReceive: {"dead-letter"},
}


def sspq_bytes(kind: type) -> bytes:
    if kind is sspq.Other:
        return b"\x55\x99\x77\0\0\0\0\0"
    return sspq.encode([SSPQ_SAMPLES[kind]])


def test_sspq_without_a_right() -> None:
    """A deleted queue is not created again either."""
    assert set(SSPQ_SAMPLES) == set(get_args(sspq.SspqFrame))

    async def test(rig: Rig) -> None:
        before = rig.position
        for kind in SSPQ_SAMPLES:
            meetings = [partial(rig.broker.sspq, f"default/{queue}") for queue in (HERE, GONE)]
            here, gone = await rig.send(*((meet, sspq_bytes(kind)) for meet in meetings))
            assert here == gone, kind
            asks = kind in (sspq.Receive, sspq.DeadReceive)
            assert here.sent == (sspq.encode([sspq.NoReceive()]) if asks else b""), kind
        assert rig.position == before

    inside([NO_RIGHT], test)


@pytest.mark.parametrize("right", RIGHTS)
def test_sspq_with_one_right(right: Right) -> None:
    async def test(rig: Rig) -> None:
        for kind in SSPQ_SAMPLES:
            before = rig.broker.runtime.counters["denied"]
            await rig.send((lambda: rig.broker.sspq(f"default/{HERE}"), sspq_bytes(kind)))
            denied = rig.broker.runtime.counters["denied"] > before
            assert denied == (kind in SSPQ_NEEDS and right not in SSPQ_NEEDS[kind]), kind

    inside([role(right)], test)
