"""The client on a PHPMQ connection, against a scripted broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import Busy, Outgoing, Published, Unsupported, aio
from penstock.wire.phpmq import Acknowledge, Consume, Publish, Reject, Requeue
from support.fakebroker import Fake, Peer, bodies, dispatch, quiet, run


def seen_by_broker(url_path: str, work: Any) -> list[Any]:
    """Return the bytes the client sent during this work."""
    frames: list[Any] = []

    async def script(peer: Peer) -> None:
        frames.extend(await peer.rest())

    async def main() -> None:
        async with Fake("phpmq", script) as fake:
            async with aio.connect(fake.url(url_path)) as client:
                await work(client)
            await fake.finished()

    run(main())
    return frames


def test_publishing() -> None:
    async def work(client: aio.AsyncClient) -> None:
        assert await client.publish(b"one") == Published(1, confirmed=False)
        await client.publish("zwölf", queue="other", ttl=1.2)
        await client.publish(Outgoing(b"", ttl=0))

    assert seen_by_broker("/jobs", work) == [
        Publish("jobs", (b"one",), None),
        Publish("other", ("zwölf".encode(),), 2),
        Publish("jobs", (b"",), 0),
    ]


@pytest.mark.parametrize("form", ["", "&form=lined", "&form=crlf"])
@pytest.mark.parametrize("dialect", ["32", "36", "ttl"])
def test_every_dialect_and_form(dialect: str, form: str) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Publish("q", (b"one",), None)
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"two"))
        assert await peer.next() == Acknowledge("q", (b"0" * 32,))

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url(f"/q?dialect={dialect}{form}")) as client:
            await client.publish(b"one")
            async for message in client.consume():
                await message.ack()
                break
            await fake.finished()

    run(main())


def test_publish_many_takes_any_iterator_and_reports_no_confirmation() -> None:
    async def numbers() -> Any:
        for number in range(1000):
            yield b"%d" % number

    async def work(client: aio.AsyncClient) -> None:
        assert await client.publish_many(numbers(), ttl=9) == Published(1000, confirmed=False)
        assert await client.publish_many([Outgoing(b"a", ttl=1), Outgoing(b"b", ttl=2), b"c"]) == Published(3, False)
        assert await client.publish_many([]) == Published(0, False)

    frames = seen_by_broker("/jobs", work)
    assert bodies(frames) == [*(b"%d" % number for number in range(1000)), b"a", b"b", b"c"]
    assert [frame.ttl for frame in frames] == [9] * 1000 + [1, 2, None]


def test_a_publisher_waits_for_a_broker_that_does_not_read() -> None:
    go_on = asyncio.Event()
    taken = 0

    async def slow(peer: Peer) -> None:
        await go_on.wait()
        await peer.rest()

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(100_000)

    async def main() -> None:
        async with Fake("phpmq", slow) as fake, aio.connect(fake.url("/jobs")) as client:
            publishing = asyncio.create_task(client.publish_many(endless()))
            await asyncio.sleep(0.3)
            stalled_at = taken
            await asyncio.sleep(0.2)
            assert taken == stalled_at, "it reads nothing that it can't send"
            assert stalled_at < 200
            publishing.cancel()
            go_on.set()

    run(main())


def test_consuming_and_every_way_to_settle() -> None:
    done: list[Any] = []

    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("jobs", 3)
        peer.send(dispatch("jobs", b"a", b"b", b"c", ttl=60))
        done.extend([await peer.next() for _ in range(3)])
        peer.send(dispatch("jobs", b"d", first=3))
        done.extend([await peer.next() for _ in range(2)])

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            seen = []
            async for message in client.consume(window=3):
                seen.append((message.body, message.queue, message.id, message.ttl))
                match message.text:
                    case "a":
                        await message.ack()
                    case "b":
                        await message.requeue(ttl=0.5)
                    case "c":
                        await message.reject()
                    case "d":
                        await message.requeue()
                        break
            await fake.finished()
        assert seen == [
            (b"a", "jobs", f"{0:032x}", 60),
            (b"b", "jobs", f"{1:032x}", 60),
            (b"c", "jobs", f"{2:032x}", 60),
            (b"d", "jobs", f"{3:032x}", 0),
        ]

    run(main())
    ids = [b"%032x" % number for number in range(4)]
    assert done == [
        Acknowledge("jobs", (ids[0],)),
        Requeue("jobs", ids[1], 1),
        Reject("jobs", (ids[2],)),
        Requeue("jobs", ids[3], 0),
        Consume("jobs", 0),
    ]


def test_messages_left_by_one_loop_go_to_the_next() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("jobs", 32)
        peer.send(dispatch("jobs", b"a", b"b", b"c"))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            seen = []
            for _ in range(3):
                async for message in client.consume():
                    seen.append(message.body)
                    break
            assert seen == [b"a", b"b", b"c"]

    run(main())


def test_receive_requests_one_message_and_then_none() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("jobs", 1)
        peer.send(dispatch("jobs", b"a"))
        assert await peer.next() == Consume("jobs", 0)
        assert await peer.next() == Acknowledge("jobs", (b"0" * 32,))
        assert await peer.next() == Consume("jobs", 1)
        assert await peer.next() == Consume("jobs", 0)

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            message = await client.receive()
            assert message is not None
            await message.ack()
            assert await client.receive(timeout=0.05) is None
            await fake.finished()

    run(main())


def test_a_cancelled_receive_loses_nothing() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.next()
        await go_on.wait()
        peer.send(dispatch("jobs", b"a"))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0.05)
            receiving.cancel()
            go_on.set()
            await asyncio.sleep(0.05)
            message = await client.receive(timeout=1)
            assert message is not None
            assert message.body == b"a"

    run(main())


def test_a_cancellation_in_the_moment_of_the_arrival_loses_nothing() -> None:
    """A receiver cancelled after the delivery reached the inbox, but before it wakes, leaves it there."""

    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(dispatch("jobs", b"a"))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            session: Any = await client._session()
            take = session.link._on_frames

            def take_and_cancel(frames: list[Any]) -> None:
                take(frames)
                receiving.cancel()

            session.link._on_frames = take_and_cancel
            with pytest.raises(asyncio.CancelledError):
                await receiving
            message = await client.receive(timeout=1)
            assert message is not None
            assert message.body == b"a"

    run(main())


def test_two_consumers_of_one_queue_need_two_clients() -> None:
    async def main() -> None:
        async with Fake("phpmq", quiet) as fake, aio.connect(fake.url("/jobs")) as client:
            first = asyncio.create_task(client.receive())
            await asyncio.sleep(0.01)
            with pytest.raises(Busy, match="use another client"):
                await client.receive()
            assert await client.receive("other", timeout=0.01) is None
            first.cancel()

    run(main())


def test_the_repr_of_a_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(dispatch("jobs", b"\x1b" + bytes(60)))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            shown = repr(await client.receive())
            assert shown.startswith(f"<Message {0:032x} from jobs: b'\\x1b\\x00")
            assert shown.endswith("…>")

    run(main())


def test_idle_ends_the_loop() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(dispatch("jobs", b"a"))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/jobs")) as client:
            assert [message.body async for message in client.consume(idle=0.1)] == [b"a"]

    run(main())


@pytest.mark.parametrize("dialect", ["32", "36"])
def test_the_plain_dialects_have_no_ttl_and_name_those_that_have(dialect: str) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("jobs", 1)
        peer.send(dispatch("jobs", b"a"))
        assert await peer.rest() == [Consume("jobs", 0)]

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url(f"/jobs?dialect={dialect}")) as client:
            with pytest.raises(Unsupported, match=r"PHPMQ \(dialects 32 and 36\) can't express 'ttl'; PHPMQ and Kokaq"):
                await client.publish(b"x", ttl=5)
            message = await client.receive()
            assert message is not None
            for settle in (message.reject, message.requeue):
                with pytest.raises(Unsupported, match="PHPMQ can"):
                    await settle()

    run(main())


def test_messages_phpmq_cannot_express() -> None:
    async def main() -> None:
        async with Fake("phpmq", quiet) as fake, aio.connect(fake.url("/jobs")) as client:
            with pytest.raises(Unsupported, match="PHPMQ can't express 'priority'; Kokaq can") as caught:
                await client.publish(b"x", priority=1)
            assert (caught.value.protocol, caught.value.operation, caught.value.instead) == (
                "PHPMQ",
                "priority",
                ("Kokaq",),
            )
            for work in (client.peek, client.pop, client.ping, client.counters, client.queue_info, client.lock):
                with pytest.raises(Unsupported, match="Kokaq can"):
                    await work()
            with pytest.raises(Unsupported, match="SSPQ can"):
                client.dead_letters()
            with pytest.raises(Unsupported, match="'lock'"):
                await client.receive(lock=5)

    run(main())


def test_bad_arguments_are_refused_before_anything_is_sent() -> None:
    async def work(client: aio.AsyncClient) -> None:
        with pytest.raises(ValueError, match="which queue"):
            await client.publish(b"x")
        with pytest.raises(ValueError, match="time to live"):
            await client.publish(b"x", queue="q", ttl=2**32)
        with pytest.raises(ValueError, match="time to live"):
            await client.publish(b"x", queue="q", ttl=-5)
        with pytest.raises(ValueError, match="queue name"):
            await client.publish(b"x", queue="")
        with pytest.raises(TypeError, match="bytes or str, not int"):
            await client.publish(5, queue="q")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^the body of an Outgoing is bytes, not str: encode text first$"):
            Outgoing("text", ttl=3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ttl would be ignored"):
            await client.publish(Outgoing(b"x"), queue="q", ttl=5)
        with pytest.raises(ValueError, match="window"):
            client.consume("q", window=0)

    assert seen_by_broker("", work) == []
