"""The client on a Kokaq connection, against a scripted broker."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from penstock.client import (
    Disconnected,
    NotHeld,
    Outgoing,
    ProtocolProblem,
    Published,
    QueueInfo,
    Refused,
    TimedOut,
    Uncertain,
    Unsupported,
    aio,
)
from penstock.client.kokaq.lock_source import LockSource
from penstock.wire.kokaq import Field, MessageType, Metadata, Opcode, Reason, Request, Response, Status
from support.fakebroker import Fake, Peer, quiet, run

FAIL, EMPTY = Status.FAIL, Reason.OK


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def hex_id(number: int) -> str:
    return uuid(number).hex()


class TestPublishing:
    def test_a_confirmed_publish_has_an_id(self) -> None:
        async def script(peer: Peer) -> None:
            push = await peer.next()
            assert (push.namespace, push.queue, push.payload, push.two_way) == ("default", "jobs", b"one", True)
            peer.answer(push, uuid=uuid(7))
            push = await peer.next()
            assert (push.namespace, push.queue, push.payload) == ("ns", "other/x", b"two")
            peer.answer(push, uuid=uuid(8), source="and more")

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                assert await client.publish(b"one") == Published(1, True, (hex_id(7),))
                assert (await client.publish("two", queue="ns/other/x")).id == hex_id(8)

        run(main())

    def test_every_detail(self) -> None:
        async def script(peer: Peer) -> None:
            push = await peer.next()
            assert push.metadata == Metadata(
                time_to_live=2,
                expires_at=99,
                uuid=uuid(1),
                request_id=uuid(2),
                correlation_id=b"c",
                priority=3,
                delay=1500,
            )
            peer.answer(push, uuid=uuid(1))

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                ids = {"request_id": uuid(2), "correlation_id": b"c"}
                await client.publish(
                    b"x", ttl=1.5, expires_at=99, id=hex_id(1), priority=3, delay=1.5, **ids  # type: ignore[arg-type]
                )  # fmt: skip

        run(main())

    def test_many_are_pipelined_and_bounded(self) -> None:
        taken = 0

        async def script(peer: Peer) -> None:
            pushes = [await peer.next() for _ in range(1024)]
            await asyncio.sleep(0.05)
            assert taken <= 1280, "it reads at most the messages in flight and one batch"
            for number, push in enumerate(pushes):
                peer.answer(push, uuid=uuid(number))
            for number in range(1024, 3000):
                peer.answer(await peer.next(), uuid=uuid(number))

        def messages() -> Any:
            nonlocal taken
            for number in range(3000):
                taken += 1
                yield b"%d" % number

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                published = await client.publish_many(messages())
                assert published == Published(3000, True, tuple(map(hex_id, range(3000))))

        run(main())

    def test_a_refusal_names_the_message_and_the_reason(self) -> None:
        async def script(peer: Peer) -> None:
            for number in range(3):
                push = await peer.next()
                if number == 1:
                    peer.answer(push, FAIL, Reason.EXISTS)
                else:
                    peer.answer(push, uuid=uuid(number))

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                with pytest.raises(Refused, match="refused to take a message: it exists already") as caught:
                    await client.publish_many([b"a", b"b", b"c"])
                error = caught.value
                assert (error.status, error.reason, error.retriable) == ("fail", "exists", False)
                assert error.messages == (Outgoing(b"b"),)
                assert error.published == Published(2, True, (hex_id(0), hex_id(2)))

        run(main())

    def test_a_refusal_for_a_fault_of_the_broker_is_retriable(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), FAIL, Reason.INFRA, source="the disk is full")

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                with pytest.raises(Refused, match="the disk is full") as caught:
                    await client.publish(b"a")
                assert caught.value.retriable

        run(main())

    def test_a_connection_lost_before_the_answer_leaves_doubt(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), uuid=uuid(1))
            await peer.next()
            await peer.writer.drain()
            peer.reset()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                with pytest.raises(Uncertain) as caught:
                    await client.publish_many([b"a", b"b", b"c"])
                error = caught.value
                assert (error.messages, error.retriable) == ((Outgoing(b"b"), Outgoing(b"c")), False)
                assert error.published == Published(1, True, (hex_id(1),))
                with pytest.raises(Disconnected):
                    await client.publish(b"d")

        run(main())

    def test_no_answer_in_time_leaves_doubt(self) -> None:
        async def main() -> None:
            async with Fake("kokaq", quiet) as fake, aio.connect(fake.url("/jobs"), timeout=0.1) as client:
                with pytest.raises(Uncertain, match=r"did not answer within 0\.1 s") as caught:
                    await client.publish(b"a", request_id=uuid(1))
                assert caught.value.retriable, "the broker would detect the duplicate"

        run(main())

    def test_messages_that_cannot_be_sent(self) -> None:
        async def script(peer: Peer) -> None:
            for number in range(256):
                peer.answer(await peer.next(), uuid=uuid(number))
            assert await peer.rest() == []

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/jobs")) as client:
                with pytest.raises(Unsupported, match=r"payload over 65,535 bytes'; PHPMQ and SSPQ can"):
                    await client.publish(bytes(65_536))
                with pytest.raises(Unsupported, match="'retries'; SSPQ can"):
                    await client.publish(b"", retries=1)
                with pytest.raises(ValueError, match="priority"):
                    await client.publish(b"", priority=-1)
                with pytest.raises(Unsupported, match="payload over") as caught:
                    await client.publish_many([b"x"] * 256 + [bytes(65_536)])
                assert caught.value.published is not None
                assert caught.value.published.count == 256
                assert caught.value.unsent == (Outgoing(bytes(65_536)),)

        run(main())


class TestConsuming:
    def test_lock_work_acknowledge(self) -> None:
        async def script(peer: Peer) -> None:
            request = await peer.next()
            assert request.operation is Opcode.ACQUIRE_PEEK_LOCK
            assert request.metadata == Metadata(lock_duration=5000)
            peer.answer(
                request, payload=b"work", uuid=uuid(1), version=3, expires_at=77, time_to_live=9, priority=4,
                correlation_id=b"c", created_at=5, source="me",
            )  # fmt: skip
            request = await peer.next()
            assert (request.operation, request.metadata) == (
                Opcode.ACQUIRE_PEEK_LOCK,
                Metadata(uuid=uuid(1), lock_duration=60_000),
            )
            peer.answer(request, uuid=uuid(1))
            request = await peer.next()
            assert (request.operation, request.metadata) == (Opcode.DELETE, Metadata(uuid=uuid(1)))
            peer.answer(request)

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/ns/q")) as client:
                async for message in client.consume(lock=5):
                    assert (message.body, message.id, message.queue) == (b"work", hex_id(1), "ns/q")
                    assert (message.deliveries, message.locked_until, message.expires_at) == (2, 77, None)
                    assert (message.ttl, message.priority, message.correlation_id) == (9, 4, b"c")
                    await message.renew(60)
                    await message.ack()
                    with pytest.raises(NotHeld, match="already acknowledged"):
                        await message.release()
                    break

        run(main())

    def test_an_empty_queue_is_polled_with_growing_pauses(self) -> None:
        polls: list[float] = []

        async def script(peer: Peer) -> None:
            clock = asyncio.get_running_loop().time
            for _ in range(5):
                request = await peer.next()
                polls.append(clock())
                peer.answer(request, FAIL, EMPTY)
            peer.answer(await peer.next(), payload=b"a", uuid=uuid(1))
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                async for message in client.consume(poll=0.04):
                    assert message.body == b"a"
                    break

        run(main())
        pauses = [after - before for before, after in pairwise(polls)]
        assert pauses[0] >= 0.009
        assert pauses[1] >= 0.019
        assert min(pauses[2:]) >= 0.039

    def test_a_busy_queue_is_locked_in_growing_batches_within_the_window(self) -> None:
        most = 0

        async def script(peer: Peer) -> None:
            nonlocal most
            out: set[bytes] = set()
            number = 0
            while (request := await peer.next()) is not None:
                if request.operation is Opcode.ACQUIRE_PEEK_LOCK:
                    number += 1
                    out.add(uuid(number))
                    most = max(most, len(out))
                    peer.answer(request, payload=b"%d" % number, uuid=uuid(number))
                elif request.two_way:
                    out.discard(request.metadata.uuid)
                    peer.answer(request)
                else:
                    assert request.operation is Opcode.RELEASE_PEEK_LOCK
                    out.discard(request.metadata.uuid)
            assert out == set(), "messages the application never saw are released"

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                seen = []
                async for message in client.consume(window=8):
                    seen.append(message.body)
                    await message.ack()
                    if len(seen) == 50:
                        break
                assert seen == [b"%d" % number for number in range(1, 51)]

        run(main())
        assert most == 8

    def test_a_full_window_waits(self) -> None:
        async def script(peer: Peer) -> None:
            number = 0
            while (request := await peer.next()) is not None:
                number += 1
                peer.answer(request, payload=b"x", uuid=uuid(number))

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                messages = client.consume(window=2)
                first, _ = await anext(messages), await anext(messages)
                third = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(0.05)
                assert not third.done()
                await first.ack()
                await third

        run(main())

    def test_an_expired_lock_frees_its_slot_and_its_message_is_not_delivered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(LockSource, "QUICK", 60)

        async def script(peer: Peer) -> None:
            number = 0
            while (request := await peer.next()) is not None:
                number += 1
                peer.answer(request, payload=b"%d" % number, uuid=uuid(number))

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                seen = []
                async with client.consume(window=2, lock=0.1) as messages:
                    async for message in messages:
                        seen.append(message.body)
                        if len(seen) == 2:
                            await asyncio.sleep(0.15)
                        if len(seen) == 4:
                            break
                assert seen[:2] == [b"1", b"2"]
                assert len(seen) == len(set(seen)) == 4

        run(main())

    def test_cancelled_while_locks_are_requested(self) -> None:
        go_on = asyncio.Event()

        async def script(peer: Peer) -> None:
            request = await peer.next()
            await go_on.wait()
            peer.answer(request, payload=b"a", uuid=uuid(1))
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                messages = client.consume()
                waiting = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(0.05)
                waiting.cancel()
                go_on.set()
                assert (await anext(messages)).body == b"a"

        run(main())

    def test_a_lock_that_arrives_after_its_caller_has_gone_is_released(self) -> None:
        go_on = asyncio.Event()
        released: list[Request] = []

        async def script(peer: Peer) -> None:
            requests = [await peer.next() for _ in range(2)]
            await go_on.wait()
            for number, request in enumerate(requests):
                peer.answer(request, payload=b"a", uuid=uuid(number))
            released.extend([await peer.next() for _ in range(2)])

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.lock()
                assert await client.receive(timeout=0.05) is None
                go_on.set()
                await fake.finished()

        run(main())
        assert [(each.operation, each.metadata, each.two_way) for each in released] == [
            (Opcode.RELEASE_PEEK_LOCK, Metadata(uuid=uuid(0)), False),
            (Opcode.RELEASE_PEEK_LOCK, Metadata(uuid=uuid(1)), False),
        ]

    def test_a_missing_queue(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), FAIL, Reason.BAD)
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                with pytest.raises(Refused, match="refused to consume 'q': there is no such queue"):
                    await anext(client.consume())

        run(main())

    def test_a_refused_acknowledgement_can_be_retried(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), payload=b"a", uuid=uuid(1))
            peer.answer(await peer.next(), FAIL, Reason.INFRA)
            peer.answer(await peer.next())
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                message = await client.lock()
                assert message is not None
                with pytest.raises(Refused):
                    await message.ack()
                with pytest.raises(Unsupported, match="'reject'; PHPMQ can"):
                    await message.reject()
                await message.ack()

        run(main())

    def test_an_acknowledgement_without_its_answer_is_uncertain(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), payload=b"a", uuid=uuid(1))
            await peer.next()
            peer.reset()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                message = await client.lock()
                assert message is not None
                with pytest.raises(Uncertain, match="may be delivered again"):
                    await message.ack()

        run(main())


class TestPop:
    def test_pop_and_empty(self) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), payload=b"a", uuid=uuid(1), expires_at=5)
            peer.answer(await peer.next(), FAIL, EMPTY)

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                message = await client.pop()
                assert message is not None
                assert (message.body, message.expires_at) == (b"a", 5)
                assert await client.pop() is None

        run(main())

    def test_the_message_of_a_cancelled_pop_goes_to_the_next(self, caplog: pytest.LogCaptureFixture) -> None:
        go_on = asyncio.Event()

        async def script(peer: Peer) -> None:
            request = await peer.next()
            await go_on.wait()
            peer.answer(request, payload=b"a", uuid=uuid(1))
            request = await peer.next()
            await asyncio.sleep(0.05)
            peer.answer(request, payload=b"b", uuid=uuid(2))
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                for body in (b"a", b"b"):
                    popping = asyncio.create_task(client.pop())
                    await asyncio.sleep(0.02)
                    popping.cancel()
                    go_on.set()
                    await asyncio.sleep(0.1)
                    if body == b"a":
                        message = await client.pop()
                        assert message is not None
                        assert message.body == body

        with caplog.at_level(logging.WARNING):
            run(main())
        assert "closed with 1 popped message(s) that were not consumed" in caplog.text

    def test_a_pop_without_its_answer_is_uncertain(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.next()
            peer.reset()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                with pytest.raises(Uncertain, match="may have been popped"):
                    await client.pop()
                with pytest.raises(Disconnected):
                    await client.pop()

        run(main())

    def test_concurrent_pops_share_the_messages(self) -> None:
        async def script(peer: Peer) -> None:
            first, second = await peer.next(), await peer.next()
            peer.answer(first, payload=b"a", uuid=uuid(1))
            peer.answer(second, FAIL, EMPTY)
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                both = await asyncio.gather(client.pop(), client.pop())
                assert sorted(message.body for message in both if message is not None) == [b"a"]

        run(main())

    def test_a_large_message_arrives_in_pieces(self) -> None:
        body = bytes(range(256)) * 1000

        async def script(peer: Peer) -> None:
            peer.answer(await peer.next(), payload=body, uuid=uuid(1))
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake:
                async with aio.connect(fake.url("/q")) as client:
                    message = await client.pop()
                    assert message is not None
                    assert message.body == body
                async with aio.connect(fake.url("/q?max_message=100000")) as client:
                    with pytest.raises(ProtocolProblem, match="over the limit of 100000") as caught:
                        await client.peek()
                    assert caught.value.code == "message-too-large"

        run(main())


class TestAdmin:
    def test_looking(self) -> None:
        async def script(peer: Peer) -> None:
            request = await peer.next()
            assert request.operation is Opcode.PEEK
            peer.answer(request, payload=b"a", uuid=uuid(1))
            request = await peer.next()
            assert (request.operation, request.metadata) == (Opcode.GET, Metadata(uuid=uuid(1)))
            peer.answer(request, payload=b"a", uuid=uuid(1), dead_reason="rejected")
            peer.answer(await peer.next(), FAIL, Reason.BAD)
            request = await peer.next()
            assert (request.operation, request.namespace, request.queue) == (Opcode.GET, "default", "q")
            peer.answer(request, depth=5, created_at=6, lock_duration=1500, max_deliveries=3)

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                message = await client.peek()
                assert message is not None
                assert message.body == b"a"
                message = await client.get(hex_id(1))
                assert message is not None
                assert message.dead_reason == "rejected"
                assert await client.get(hex_id(2)) is None
                assert await client.queue_info() == QueueInfo("q", 5, 6, None, 1.5, 3)

        run(main())

    def test_creating_and_deleting(self) -> None:
        seen: list[Any] = []

        async def script(peer: Peer) -> None:
            for status, reason in [(0, 1), (1, 3), (1, 3), (0, 1), (1, 4), (0, 1)]:
                request = await peer.next()
                seen.append((request.operation, request.message_type, request.namespace, request.queue))
                peer.answer(request, status, reason)

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q")) as client:
                assert await client.create_queue(ttl=5, lock=1, max_deliveries=2) is True
                assert await client.create_queue(exist_ok=True) is False
                with pytest.raises(Refused, match="create 'q': it exists already"):
                    await client.create_queue()
                assert await client.create_namespace("ns") is True
                with pytest.raises(Refused, match="delete 'q': that is not allowed"):
                    await client.delete_queue()
                await client.delete_namespace("ns")

        run(main())
        admin = MessageType.ADMIN
        assert seen == [
            *[(Opcode.CREATE, admin, "default", "q")] * 3,
            (Opcode.CREATE, admin, "ns", ""),
            (Opcode.DELETE, admin, "default", "q"),
            (Opcode.DELETE, admin, "ns", ""),
        ]

    def test_the_broker_itself(self) -> None:
        async def script(peer: Peer) -> None:
            request = await peer.next()
            assert (request.operation, request.message_type) == (Opcode.NOP, MessageType.OPERATIONAL)
            peer.answer(request)
            for _ in range(2):
                request = await peer.next()
                assert (request.operation, request.message_type) == (Opcode.NOP, MessageType.CONTROL)
                peer.answer(request) if _ == 0 else peer.answer(request, FAIL, Reason.INFRA, source="no disk")
            request = await peer.next()
            assert (request.operation, request.message_type) == (Opcode.GET, MessageType.CONTROL)
            peer.answer(request, depth=3, others=(Field(0x60, b"\1\0"),))

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url()) as client:
                await client.ping()
                assert await client.health() is None
                assert await client.health() == "no disk"
                assert await client.counters() == {"depth": 3, "field_0x60": 256}

        run(main())

    @pytest.mark.parametrize("variant", ["numbering=listing", "bits=high", "numbering=listing&bits=high"])
    def test_other_numberings(self, variant: str) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next())

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url(f"?{variant}")) as client:
                await client.ping()

        run(main())

    def test_time_out(self) -> None:
        async def main() -> None:
            async with Fake("kokaq", quiet) as fake, aio.connect(fake.url("?timeout=0.1")) as client:
                with pytest.raises(TimedOut, match=r"did not answer within 0\.1 s") as caught:
                    await client.ping()
                assert caught.value.retriable
                with pytest.raises(TimedOut):
                    await client.ping()

        run(main())

    def test_an_answer_without_a_request(self) -> None:
        async def script(peer: Peer) -> None:
            peer.send(Response(MessageType.OPERATIONAL, b"abcd", 0, 0, 1))
            await peer.rest()

        async def main() -> None:
            async with Fake("kokaq", script) as fake, aio.connect(fake.url()) as client:
                with pytest.raises(ProtocolProblem, match="a request that was not sent"):
                    await client.ping()

        run(main())
