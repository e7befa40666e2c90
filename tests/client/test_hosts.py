"""Several hosts in one URL: the client finds the serving one, also after a loss, whatever the other hosts do."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, Unpack

import pytest

from penstock.client import TLS, ConnectFailed, Published, Reconnect, Refused, Uncertain, aio, connect
from penstock.client.connection import KEEPALIVE
from penstock.client.options import ClientSettings
from penstock.wire.kokaq import Opcode
from penstock.wire.phpmq import Consume
from penstock.wire.sspq import NoReceive, Receive, Send
from support import absent
from support.brokers import BrokerProcess
from support.certificates import Authority
from support.fakebroker import Fake, Peer, Script, dispatch, quiet, run

QUICK = Reconnect(first=0.01, most=0.05)


@pytest.fixture
def refusing() -> Iterator[str]:
    with absent.refusing() as place:
        yield place


@pytest.fixture
def stopped() -> Iterator[str]:
    with absent.stopped() as place:
        yield place


@pytest.fixture
def silent() -> Iterator[str]:
    with absent.silent() as place:
        yield place


def url(protocol: str, *places: Fake | str) -> str:
    hosts = ",".join(each if isinstance(each, str) else f"127.0.0.1:{each.port}" for each in places)
    return f"{protocol}://{hosts}{'' if protocol == 'sspq' else '/q'}"


class Pair(AsyncExitStack):
    """Two brokers, and a client with both addresses."""

    def __init__(self, protocol: str, first: Script, second: Script, **options: Unpack[ClientSettings]) -> None:
        super().__init__()
        self.one, self.two = Fake(protocol, first), Fake(protocol, second)
        self._options = options
        self.client: aio.AsyncClient

    async def __aenter__(self) -> Self:
        for each in (self.one, self.two):
            await self.enter_async_context(each)
        connecting = aio.connect(url(self.one.protocol, self.one, self.two), **self._options)
        self.client = await self.enter_async_context(connecting)
        return self


def answer(peer: Peer, request: Any) -> None:
    fields: dict[str, Any] = {} if request.operation is Opcode.NOP else {"uuid": bytes(16)}
    peer.answer(request, **fields)


async def answering(peer: Peer) -> None:
    """A Kokaq broker that accepts everything."""
    while (request := await peer.next()) is not None:
        answer(peer, request)


@pytest.mark.parametrize("protocol", ["phpmq", "sspq"])
def test_the_serving_host_is_found(protocol: str, refusing: str, silent: str) -> None:
    async def main() -> None:
        async with Fake(protocol, quiet) as fake:
            began = time.monotonic()
            async with aio.connect(url(protocol, refusing, silent, fake)) as client:
                assert (client.address.port, len(client.addresses)) == (fake.port, 3)
            assert time.monotonic() - began < 5, "it waited for the time-out of the silent host"

    run(main())


def test_a_stopped_broker_is_skipped(stopped: str) -> None:
    async def main() -> None:
        async with Fake("kokaq", answering) as fake, aio.connect(url("kokaq", stopped, fake)) as client:
            assert client.address.port == fake.port
            assert (await client.publish(b"a")).confirmed

    run(main())


def test_the_first_serving_host_is_used_and_later_ones_are_not_contacted() -> None:
    async def main() -> None:
        async with Fake("kokaq", answering) as one, Fake("kokaq", answering) as two:
            async with aio.connect(url("kokaq", one, two)) as client:
                assert client.address.port == one.port
            assert (one.connections, two.connections) == (1, 0)

    run(main())


def test_no_host_serves(refusing: str, stopped: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed) as caught:
            await aio.connect(url("kokaq", refusing, stopped), connect_timeout=0.2, reconnect=True)
        assert caught.value.retriable
        assert str(caught.value) == (
            f"none of 2 hosts serves: Kokaq at {refusing}: Connection refused; "
            f"Kokaq at {stopped}: no answer within 0.2 s"
        )

    run(main())


def test_the_client_waits_for_a_take_over(refusing: str, caplog: pytest.LogCaptureFixture) -> None:
    async def soon(peer: Peer) -> None:
        if fake.connections == 1:
            peer.reset()
        else:
            await answering(peer)

    fake = Fake("kokaq", soon)

    async def main() -> None:
        async with fake:
            with pytest.raises(ConnectFailed, match="none of 2 hosts serves"):
                await aio.connect(url("kokaq", refusing, fake), reconnect=False)
            fake.connections = 0
            async with aio.connect(url("kokaq", refusing, fake)) as client:
                assert (await client.publish(b"a")).confirmed
            assert fake.connections == 2

    run(main())
    [warning] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith("none of 2 hosts serves: ")
    assert warning.endswith("; retrying for 10 s")


def test_a_host_that_is_no_broker_is_not_used() -> None:
    async def babbling(peer: Peer) -> None:
        peer.send(b"220 mail.example.com ready, and a good deal more than that to say\r\n" * 10)
        await peer.reader.read()

    async def main() -> None:
        async with Fake("kokaq", babbling) as other, Fake("kokaq", answering) as fake:
            async with aio.connect(url("kokaq", other, fake)) as client:
                assert client.address.port == fake.port
            with pytest.raises(ConnectFailed, match="does not speak Kokaq") as caught:
                await aio.connect(url("kokaq", other, f"localhost:{other.port}"))
            assert not caught.value.retriable, "waiting would not help"

    run(main())


def test_a_consumer_continues_on_the_serving_host() -> None:
    pairs: list[Pair] = []

    async def first(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"a"))
        await asyncio.sleep(0.05)
        pairs[0].one.stop()
        peer.reset()

    async def second(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"b"))
        await peer.rest()

    async def main() -> None:
        async with Pair("phpmq", first, second) as pair:
            pairs.append(pair)
            messages = pair.client.consume()
            assert [(await anext(messages)).body for _ in range(2)] == [b"a", b"b"]
            assert pair.client.address.port == pair.two.port

    run(main())


def test_a_push_without_a_request_id_stays_uncertain() -> None:
    seen: list[Any] = []

    async def losing(peer: Peer) -> None:
        peer.answer(await peer.next())
        await peer.next()
        peer.reset()

    async def second(peer: Peer) -> None:
        peer.answer(await peer.next())
        seen.extend(await peer.rest())

    async def main(*, idempotent: bool = False) -> Published:
        async with Pair("kokaq", losing, answering if idempotent else second, idempotent=idempotent) as pair:
            return await pair.client.publish(b"a")

    with pytest.raises(Uncertain) as caught:
        run(main())
    assert ([message.body for message in caught.value.messages], seen) == ([b"a"], [])
    assert run(main(idempotent=True)).confirmed, "the next broker would detect the duplicate"


def test_a_planned_hand_over_is_transparent_to_a_publisher() -> None:
    """A broker that shuts down refuses new messages and ends the connection; they are resent."""
    taken: list[bytes] = []

    async def leaving(peer: Peer) -> None:
        peer.answer(await peer.next())
        for number in range(5):
            push = await peer.next()
            if number < 2:
                taken.append(push.payload)
            peer.answer(push, *((0, 1) if number < 2 else (1, 5)))
        await peer.writer.drain()

    async def second(peer: Peer) -> None:
        while (request := await peer.next()) is not None:
            if request.operation is Opcode.PUSH:
                taken.append(request.payload)
            answer(peer, request)

    async def main() -> None:
        async with Pair("kokaq", leaving, second) as pair:
            published = await pair.client.publish_many(b"%d" % number for number in range(5))
        assert (published.count, published.confirmed) == (5, True)

    run(main())
    assert taken == [b"0", b"1", b"2", b"3", b"4"]


def test_a_refusal_without_a_shutdown_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.publisher.FAREWELL", 0.05)

    async def full(peer: Peer) -> None:
        peer.answer(await peer.next())
        peer.answer(await peer.next(), 1, 5)
        await peer.rest()

    async def main() -> None:
        async with Pair("kokaq", full, quiet) as pair:
            with pytest.raises(Refused) as caught:
                await pair.client.publish(b"a")
            assert (caught.value.reason, caught.value.retriable) == ("infra", True)

    run(main())


def test_consumers_move_to_the_next_host_when_one_announces_its_end() -> None:
    async def leaving_sspq(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(NoReceive())
        await peer.rest()

    async def sspq(peer: Peer) -> None:
        assert await peer.next() == Receive()
        peer.send(Send(0, (b"a",)))
        await peer.rest()

    async def leaving_kokaq(peer: Peer) -> None:
        peer.answer(await peer.next())
        peer.answer(await peer.next(), 1, 5)
        await peer.rest()

    async def kokaq(peer: Peer) -> None:
        peer.answer(await peer.next())
        peer.answer(await peer.next(), payload=b"a", uuid=bytes(16))
        await peer.rest()

    async def main(protocol: str, first: Script, second: Script) -> None:
        async with Pair(protocol, first, second) as pair:
            assert (await anext(pair.client.consume(window=1))).body == b"a"

    run(main("sspq", leaving_sspq, sspq))
    run(main("kokaq", leaving_kokaq, kokaq))


def test_each_host_has_its_own_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")

    def context(name: str) -> ssl.SSLContext:
        signed = authority.sign_as(name, f"/CN={name}", f"DNS:{name}")
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(signed.path, signed.key)
        return made

    async def main() -> None:
        async with (
            Fake("phpmq", quiet, tls=context("one.example")) as one,
            Fake("phpmq", quiet, tls=context("two.example")) as two,
        ):
            where = f"phpmq+tls://127.0.0.1:{one.port},127.0.0.1:{two.port}/q"
            tls = TLS(ca=str(authority.path), server_name="one.example,two.example")
            async with aio.connect(where, tls=tls) as client:
                assert client.address.port == one.port
            tls = TLS(ca=str(authority.path), server_name="two.example")
            async with aio.connect(where, tls=tls) as client:
                assert client.address.port == two.port, "the other host's certificate does not match"

    run(main())


def test_keepalive_detects_a_lost_host() -> None:
    async def main() -> None:
        async with Fake("phpmq", quiet) as fake, aio.connect(fake.url("/q")) as client:
            session = await client._session()
            sock = session.link._transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for name, value in KEEPALIVE.items():
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value

    run(main())


def test_two_brokers_that_take_turns(tmp_path: Path) -> None:
    """A client continues with the remaining real broker, with the same URL."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with BrokerProcess(tmp_path / "a") as one, BrokerProcess(tmp_path / "b") as two:
        hosts = ",".join(each.url("kokaq").partition("://")[2] for each in (one, two))
        with connect(f"kokaq://{hosts}/default/q") as client:
            client.create_queue(exist_ok=True)
            assert client.publish(b"first").confirmed
            assert one.stop() == 0
            client.create_queue(exist_ok=True)
            assert client.publish(b"second").confirmed
            assert client.pop().body == b"second"  # type: ignore[union-attr]
