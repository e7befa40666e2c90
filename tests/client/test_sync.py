"""The synchronous client, which runs the asynchronous one in a thread."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.client import Client, Closed, ConnectFailed, Disconnected, NotHeld, Published, aio, connect, sync
from penstock.client.aio import AsyncClient
from penstock.wire.kokaq import Opcode
from penstock.wire.phpmq import Acknowledge, Consume, Reject, Requeue
from support.fakebroker import Fake, Peer, Script, dispatch, quiet


@contextmanager
def broker(protocol: str, *scripts: Script) -> Iterator[Fake]:
    """Run a scripted broker in a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = Fake(protocol, *scripts)

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    run(fake.__aenter__())
    try:
        yield fake
        run(fake.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_it_has_the_same_methods() -> None:
    def public(cls: type) -> dict[str, list[str]]:
        found = inspect.getmembers(cls, inspect.isfunction)
        return {name: [*inspect.signature(each).parameters] for name, each in found if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)
    assert public(sync.Message) == public(aio.Message)


def test_publish_consume_settle() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"a", b"b", b"c"))
        ids = [b"%032x" % number for number in range(3)]
        assert await peer.next() == Acknowledge("q", (ids[0],))
        assert await peer.next() == Requeue("q", ids[1], 5)
        assert await peer.next() == Reject("q", (ids[2],))
        assert await peer.next() == Consume("q", 0)
        assert [frame.payloads for frame in await peer.rest()] == [(b"x",), (b"y",), (b"z",)]

    with broker("phpmq", script) as fake, connect(fake.url("/q")) as client:
        messages = client.consume()
        first = next(messages)
        assert (first.body, first.text, first.queue) == (b"a", "a", "q")
        first.ack()
        with pytest.raises(NotHeld):
            first.ack()
        next(messages).requeue(5)
        next(messages).reject()
        messages.close()
        assert client.publish(b"x") == Published(1, False)
        assert client.publish_many(part for part in (b"y", b"z")) == Published(2, False)


def test_leaving_a_loop_ends_consuming() -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Consume("q", 32)
        peer.send(dispatch("q", b"a"))
        assert await peer.next() == Consume("q", 0)

    with broker("phpmq", script) as fake, connect(fake.url("/q")) as client:
        for message in client.consume():
            assert message.body == b"a"
            break
        time.sleep(0.05)


def test_idle_and_timeout() -> None:
    with broker("phpmq", quiet) as fake, connect(fake.url("/q")) as client:
        assert list(client.consume(idle=0.05)) == []
        assert client.receive(timeout=0.05) is None


def test_everything_of_kokaq() -> None:
    async def script(peer: Peer) -> None:
        while (request := await peer.next()) is not None:
            with_message = {Opcode.PEEK, Opcode.POP, Opcode.ACQUIRE_PEEK_LOCK}
            if not request.two_way:
                continue
            if request.operation in with_message or (request.operation is Opcode.GET and request.metadata):
                peer.answer(request, payload=b"a", uuid=bytes(16))
            elif request.operation is Opcode.PUSH:
                peer.answer(request, uuid=bytes(16))
            elif request.operation is Opcode.GET:
                peer.answer(request, depth=1)
            else:
                peer.answer(request)

    with broker("kokaq", script) as fake, connect(fake.url("/q")) as client:
        assert client.create_namespace("ns") is client.create_queue() is True
        assert client.publish(b"a").confirmed
        for message in (client.peek(), client.pop(), client.get("0" * 32)):
            assert message is not None
            assert message.body == b"a"
        locked = client.lock()
        assert locked is not None
        locked.renew(10)
        locked.release()
        received = client.receive()
        assert received is not None
        received.ack()
        assert client.queue_info().depth == 1
        assert client.health() is None
        client.ping()
        assert client.counters() == {"depth": 1}
        client.delete_queue()
        client.delete_namespace("ns")
        assert (client.protocol, client.address.queue) == ("Kokaq", "q")


def test_the_iterator_is_read_in_the_callers_thread() -> None:
    threads: set[int] = set()

    def messages() -> Iterator[bytes]:
        for _ in range(1000):
            threads.add(threading.get_ident())
            yield b"x"

    with broker("sspq", quiet) as fake, connect(fake.url()) as client:
        assert client.publish_many(messages()).count == 1000
    assert threads == {threading.get_ident()}


def test_several_threads_share_a_client() -> None:
    async def script(peer: Peer) -> None:
        while (request := await peer.next()) is not None:
            peer.answer(request, uuid=bytes(16))

    with broker("kokaq", script) as fake, connect(fake.url("/q")) as client:
        threads = [threading.Thread(target=client.publish, args=(b"x",)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert not any(thread.is_alive() for thread in threads)


def test_errors_are_raised_in_the_caller() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    with broker("sspq", script) as fake:
        with connect(fake.url()) as client, pytest.raises(Disconnected):
            client.receive()
        url = fake.url()
    with pytest.raises(ConnectFailed):
        connect(url)


def test_closed() -> None:
    before = threading.active_count()
    with broker("sspq", quiet) as fake:
        client = connect(fake.url())
        messages = client.consume()
        client.close()
        client.close()
        with pytest.raises(Closed):
            client.publish(b"x")
        with pytest.raises(Closed):
            next(messages)
    assert threading.active_count() == before


SCRIPT = """
import signal, sys, threading, os, time
from penstock.client import connect
client = connect(sys.argv[1])
if sys.argv[2] == "interrupt":
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        client.receive()
    except KeyboardInterrupt:
        client.publish(b"still alive")
        client.close()
        print("interrupted")
"""


@pytest.mark.parametrize(("what", "printed"), [("interrupt", "interrupted\n"), ("forget to close", "")])
def test_a_script_ends(what: str, printed: str) -> None:
    with broker("sspq", quiet) as fake:
        command = [sys.executable, "-X", "dev", "-c", SCRIPT, fake.url(), what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
