"""Reconnecting after a loss: what continues by itself, what is resent, and what never is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import Closed, ConnectFailed, NoMessage, NotHeld, Outgoing, Published, Reconnect, Uncertain, aio
from penstock.wire.kokaq import Opcode
from penstock.wire.phpmq import Acknowledge, Consume, Publish
from penstock.wire.sspq import NoReceive, Receive, Send
from support.fakebroker import Fake, Peer, dispatch, run, until_over

QUICK = Reconnect(first=0.01, most=0.05)


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_pauses_grow_and_end() -> None:
    pauses = list(Reconnect(first=1, most=4, attempts=6).pauses())
    assert pauses[0] == 0
    for pause, whole in zip(pauses[1:], [1, 2, 4, 4, 4], strict=True):
        assert whole / 2 <= pause <= whole


def test_a_consumer_continues_and_old_deliveries_cannot_be_settled() -> None:
    received, settled = asyncio.Event(), asyncio.Event()

    async def first(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"a", b"b"))
        await received.wait()
        peer.reset()

    async def second(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"a", b"b"))
        assert await peer.next() == Acknowledge("q", (b"%032x" % 0,))
        settled.set()
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", first, second) as fake, aio.connect(fake.url("/q"), reconnect=QUICK) as client:
            seen = []
            async for message in client.consume():
                seen.append(message.body)
                if len(seen) == 1:
                    received.set()
                    await until_over(client)
                    with pytest.raises(NotHeld, match="the broker delivers it again") as caught:
                        await message.ack()
                    assert not caught.value.retriable
                else:
                    await message.ack()
                    break
            assert seen == [b"a", b"a"], "messages of the old connection are dropped and redelivered"
            await settled.wait()

    run(main())


def test_publishing_continues_but_uncertain_messages_are_not_resent() -> None:
    seen: list[Any] = []

    async def first(peer: Peer) -> None:
        await peer.reader.read(100)
        await asyncio.sleep(0.1)
        peer.reset()

    async def second(peer: Peer) -> None:
        seen.extend(await peer.rest())

    async def main() -> None:
        async with Fake("phpmq", first, second) as fake:
            async with aio.connect(fake.url("/q"), reconnect=QUICK) as client:
                with pytest.raises(Uncertain):
                    await client.publish_many(bytes(2**20) for _ in range(50))
                await client.publish(b"after")
            await fake.finished(connections=2)

    run(main())
    assert seen == [Publish("q", (b"after",), None)]


def test_pushes_without_a_request_id_are_not_resent() -> None:
    seen: list[Any] = []

    async def first(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def second(peer: Peer) -> None:
        seen.extend(await peer.rest())

    async def main() -> None:
        async with Fake("kokaq", first, second) as fake, aio.connect(fake.url("/q"), reconnect=QUICK) as client:
            with pytest.raises(Uncertain) as caught:
                await client.publish_many([b"a", Outgoing(b"b", request_id=uuid(1))])
            assert [message.body for message in caught.value.messages] == [b"a", b"b"]
            assert not caught.value.retriable

    run(main())
    assert seen == []


def test_idempotent_pushes_are_resent_with_the_same_request_ids() -> None:
    before: list[Any] = []
    after: list[Any] = []

    async def first(peer: Peer) -> None:
        for number in range(1000):
            before.append(await peer.next())
            if number < 300:
                peer.answer(before[-1], uuid=uuid(number))
        await peer.writer.drain()
        await asyncio.sleep(0.05)
        peer.reset()

    async def second(peer: Peer) -> None:
        while (push := await peer.next()) is not None:
            after.append(push)
            peer.answer(push, uuid=uuid(int(push.payload)))

    async def main() -> None:
        async with Fake("kokaq", first, second) as fake:
            async with aio.connect(fake.url("/q"), reconnect=QUICK, idempotent=True) as client:
                published = await client.publish_many(b"%d" % number for number in range(3000))
            assert published == Published(3000, True, tuple(uuid(number).hex() for number in range(3000)))

    run(main())
    assert [push.payload for push in after] == [b"%d" % number for number in range(300, 3000)], "in order"
    ids = [push.metadata.request_id for push in before[300:]]
    assert [push.metadata.request_id for push in after[:700]] == ids
    assert len(set(ids)) == 700


def test_after_a_while_even_idempotent_pushes_are_not_resent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.publisher.RESEND_WITHIN", 0.05)

    async def first(peer: Peer) -> None:
        await peer.next()
        await asyncio.sleep(0.1)
        peer.reset()

    async def main() -> None:
        async with Fake("kokaq", first) as fake:
            client = await aio.connect(fake.url("/q"), reconnect=QUICK, idempotent=True)
            with pytest.raises(Uncertain):
                await client.publish(b"a")
            await client.close()

    run(main())


def test_a_kokaq_consumer_continues() -> None:
    async def first(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def second(peer: Peer) -> None:
        request = await peer.next()
        assert request.operation is Opcode.ACQUIRE_PEEK_LOCK
        peer.answer(request, payload=b"a", uuid=uuid(1))
        await peer.rest()

    async def main() -> None:
        async with Fake("kokaq", first, second) as fake, aio.connect(fake.url("/q"), reconnect=QUICK) as client:
            messages = client.consume(window=1)
            assert (await anext(messages)).body == b"a"

    run(main())


def test_a_consumer_with_a_full_window_detects_the_loss() -> None:
    async def script(peer: Peer) -> None:
        peer.answer(await peer.next(), payload=b"a", uuid=uuid(1))
        await asyncio.sleep(0.1)
        peer.reset()

    async def main() -> None:
        async with Fake("kokaq", script) as fake, aio.connect(fake.url("/q"), reconnect=QUICK) as client:
            messages = client.consume(window=1)
            assert (await anext(messages)).body == b"a"
            assert (await anext(messages)).body == b"a"

    run(main())


def test_the_client_waits_for_a_broker_that_shuts_down() -> None:
    async def leaving(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(NoReceive())
        await peer.rest()

    async def second(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(Send(0, (b"a",)))
        await peer.rest()

    async def main() -> None:
        async with Fake("sspq", leaving, second) as fake, aio.connect(fake.url(), reconnect=QUICK) as client:
            messages = client.consume()
            assert (await anext(messages)).body == b"a"
        async with Fake("sspq", leaving) as fake, aio.connect(fake.url(), reconnect=QUICK) as client:
            with pytest.raises(NoMessage):
                await client.receive()
            assert fake.connections == 2, "one more attempt, then none"

    run(main())


def test_giving_up_after_some_attempts() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def main() -> None:
        async with Fake("kokaq", script) as fake:
            options = Reconnect(first=0.01, most=0.01, attempts=3)
            async with aio.connect(fake.url("/q"), reconnect=options, idempotent=True) as client:
                fake.stop()
                with pytest.raises(Uncertain, match="refused") as caught:
                    await client.publish(b"a")
                assert [message.body for message in caught.value.messages] == [b"a"]
                with pytest.raises(ConnectFailed) as failed:
                    await client.publish(b"b")
                assert [message.body for message in failed.value.unsent] == [b"b"]

    run(main())


def test_many_tasks_continue_over_one_new_connection() -> None:
    async def first(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def second(peer: Peer) -> None:
        while (request := await peer.next()) is not None:
            peer.answer(request, uuid=uuid(1))

    async def main() -> None:
        async with Fake("kokaq", first, second) as fake:
            async with aio.connect(fake.url("/q"), reconnect=QUICK, idempotent=True) as client:
                await asyncio.gather(*(client.publish(b"%d" % number) for number in range(20)))
            assert fake.connections == 2

    run(main())


def test_closed_while_there_is_no_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def main() -> None:
        async with Fake("kokaq", script) as fake:
            client = await aio.connect(fake.url("/q"), reconnect=Reconnect(first=0.1, most=0.1))
            fake.stop()
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(Closed):
                await receiving

    run(main())
