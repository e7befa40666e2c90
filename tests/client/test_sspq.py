"""The client on an SSPQ connection, against a scripted broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import Busy, Disconnected, NoMessage, NotHeld, ProtocolProblem, Published, Unsupported, aio
from penstock.wire.sspq import Confirm, DeadReceive, NoReceive, Receive, Send
from support.fakebroker import Fake, Peer, quiet, run, until_over


def test_publishing() -> None:
    frames: list[Any] = []

    async def script(peer: Peer) -> None:
        frames.extend(await peer.rest())

    async def main() -> None:
        async with Fake("sspq", script) as fake:
            async with aio.connect(fake.url()) as client:
                assert await client.publish(b"one", retries=3) == Published(1, confirmed=False)
                await client.publish_many([b"two", b"three"])
            await fake.finished()

    run(main())
    assert frames == [Send(3, (b"one",)), Send(255, (b"two",)), Send(255, (b"three",))]


def test_one_message_at_a_time() -> None:
    async def script(peer: Peer) -> None:
        for number in range(3):
            assert await peer.next() == Receive()
            peer.send(Send(number, (b"%d" % number,)))
            assert await peer.next() == Confirm()
        assert await peer.next() == Receive()
        assert await peer.rest() == []

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            seen = []
            async for message in client.consume(idle=0.1):
                seen.append((message.body, message.retries, message.id))
                await message.ack()
            assert seen == [(b"0", 0, None), (b"1", 1, None), (b"2", 2, None)]

    run(main())


def test_the_next_request_waits_for_the_acknowledgement() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(Send(0, (b"a",)))
        assert await peer.next() == Confirm()
        assert await peer.next() == Receive()
        peer.send(Send(0, (b"b",)))
        await peer.rest()

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client, client.consume() as messages:
            first = await anext(messages)
            following = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.05)
            assert not following.done()
            await first.ack()
            assert (await following).body == b"b"

    run(main())


def test_dead_letters() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == DeadReceive()
        peer.send(Send(0, (b"dead",)))
        assert await peer.next() == Confirm()
        assert await peer.next() == DeadReceive()
        peer.send(NoReceive())
        await peer.rest()

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            dead = client.dead_letters()
            message = await anext(dead)
            assert message.body == b"dead"
            await message.ack()
            with pytest.raises(NoMessage, match="dead letters are switched off") as caught:
                await anext(dead)
            assert not caught.value.retriable

    run(main())


def test_no_message_will_come() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(NoReceive())
        assert await peer.next() == Receive()
        peer.send(Send(0, (b"after all",)))
        await peer.rest()

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            with pytest.raises(NoMessage, match="shutting down") as caught:
                await client.receive()
            assert caught.value.retriable
            message = await client.receive()
            assert message is not None
            assert message.body == b"after all"

    run(main())


async def refusal(client: aio.AsyncClient) -> str:
    """Return the error of a request for a dead letter."""
    async with client.dead_letters() as letters:
        with pytest.raises(Busy) as caught:
            await anext(letters)
    return str(caught.value)


def test_an_abandoned_request_is_still_outstanding() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        assert await peer.next() == Receive()
        await go_on.wait()
        peer.send(Send(0, (b"late",)))
        assert await peer.rest() == [Confirm()]

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            assert await client.receive(timeout=0.05) is None
            assert "is waiting for a message and can't request a dead letter" in await refusal(client)
            go_on.set()
            while "use another client" not in await refusal(client):  # the message has not arrived yet
                await asyncio.sleep(0.001)
            message = await client.receive()
            assert message is not None
            assert message.body == b"late"
            await message.ack()

    run(main())


def test_an_unrequested_message_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        peer.send(Send(0, (b"surprise",)))
        await peer.rest()

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            await until_over(client)
            with pytest.raises(ProtocolProblem, match="sent a message without a request"):
                await client.receive()

    run(main())


def test_one_consumer_per_client() -> None:
    async def main() -> None:
        async with Fake("sspq", quiet) as fake, aio.connect(fake.url()) as client:
            first = asyncio.create_task(client.receive())
            await asyncio.sleep(0.01)
            with pytest.raises(Busy, match="one message at a time"):
                await client.receive()
            first.cancel()

    run(main())


def test_messages_sspq_cannot_express() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(Send(0, (b"a",)))
        assert await peer.rest() == [Confirm()]

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            for details in ({"ttl": 5}, {"priority": 1}, {"delay": 1.0}, {"request_id": bytes(16)}):
                with pytest.raises(Unsupported, match="SSPQ can't express"):
                    await client.publish(b"x", **details)
            for work in (client.publish(b"x", queue="q"), client.receive("q")):
                with pytest.raises(Unsupported, match="'queue'; PHPMQ and Kokaq can"):
                    await work
            with pytest.raises(ValueError, match="255 for no limit, not 256"):
                await client.publish(b"x", retries=256)
            message = await client.receive()
            assert message is not None
            with pytest.raises(Unsupported, match="'requeue'; PHPMQ can"):
                await message.requeue()
            for settle in (message.release, message.renew):
                with pytest.raises(Unsupported, match="Kokaq can"):
                    await settle()
            await message.ack()
            with pytest.raises(NotHeld, match="was already acknowledged"):
                await message.ack()

    run(main())


def test_the_connection_is_lost_with_a_message_out() -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(Send(3, (b"a",)))
        await received.wait()
        peer.reset()

    async def main() -> None:
        async with Fake("sspq", script) as fake, aio.connect(fake.url()) as client:
            message = await client.receive()
            assert message is not None
            received.set()
            await until_over(client)
            with pytest.raises(NotHeld, match="the broker delivers it again"):
                await message.ack()
            with pytest.raises(Disconnected) as caught:
                await client.receive()
            assert caught.value.retriable

    run(main())
