"""Connections that fail: refused, lost, stalled, not understood, closed; and working TLS and Unix sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

from penstock.client import TLS, BadURL, Closed, ConnectFailed, Disconnected, ProtocolProblem, Uncertain, aio
from penstock.wire.phpmq import Publish
from support.fakebroker import Fake, Peer, dispatch, quiet, run

PROTOCOLS = ["phpmq", "sspq", "kokaq"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_connection_refused(protocol: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=r"at 127\.0\.0\.1:.*refused") as caught:
            await aio.connect(f"{protocol}://127.0.0.1:{free_port()}", reconnect=True)
        assert caught.value.retriable

    run(main())


def test_no_such_socket(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match="No such file") as caught:
            await aio.connect(f"phpmq+unix://{tmp_path}/x.sock")
        assert caught.value.retriable

    run(main())


def test_connect_timeout() -> None:
    """A listener with a full accept queue lets connections hang."""

    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            with pytest.raises(ConnectFailed, match=r"no connection within 0\.2 s") as caught:
                await aio.connect(f"sspq://127.0.0.1:{port}", connect_timeout=0.2)
            assert caught.value.retriable
            for filler in fillers:
                filler.close()

    run(main())


def test_unix_socket(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.next() == Publish("jobs", (b"x",), None)

    async def main() -> None:
        async with Fake("phpmq", script, unix=tmp_path / "a b.sock") as fake:
            url = fake.url("?queue=jobs").replace(" ", "%20")
            async with aio.connect(url) as client:
                await client.publish(b"x")
                await fake.finished()

    run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46" * 9]
)
def test_a_server_of_another_kind(protocol: str, garbage: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(garbage)
        await peer.rest()

    async def main() -> None:
        async with Fake(protocol, script) as fake, aio.connect(fake.url()) as client:
            queue = None if protocol == "sspq" else "q"
            with pytest.raises(ProtocolProblem, match="does not speak") as caught:
                await client.receive(queue)
            assert caught.value.code.startswith("bad-")
            assert not caught.value.retriable

    run(main())


@pytest.mark.parametrize(
    ("protocol", "half"),
    [("phpmq", b"H0100303P0100"), ("sspq", b"\x55\x99\x5e\x00\0\0\0\5Hel"), ("kokaq", b"\x04\x20\x01\x00\0\0")],
)
def test_half_a_message_and_the_end(protocol: str, half: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(half)

    async def main() -> None:
        async with Fake(protocol, script) as fake, aio.connect(fake.url()) as client:
            with pytest.raises(Disconnected, match="in the middle of a message"):
                await client.receive(None if protocol == "sspq" else "q")

    run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reset_while_waiting(protocol: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.reset()

    async def main() -> None:
        async with Fake(protocol, script) as fake, aio.connect(fake.url()) as client:
            with pytest.raises(Disconnected) as caught:
                await client.receive(None if protocol == "sspq" else "q")
            assert caught.value.retriable
            with pytest.raises(Disconnected):
                await client.publish(b"x", queue=None if protocol == "sspq" else "q")

    run(main())


def test_messages_over_the_limit_are_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(dispatch("q", bytes(1001)))
        await peer.rest()

    async def main() -> None:
        async with Fake("phpmq", script) as fake, aio.connect(fake.url("/q"), max_message=1000) as client:
            with pytest.raises(ProtocolProblem, match="over the limit of 1000"):
                await client.receive()

    run(main())


@pytest.mark.parametrize("protocol", ["phpmq", "sspq"])
def test_a_publish_to_a_broker_that_does_not_read_times_out(protocol: str) -> None:
    stop = asyncio.Event()

    async def deaf(peer: Peer) -> None:
        await stop.wait()

    async def main() -> None:
        async with Fake(protocol, deaf) as fake, aio.connect(fake.url(), timeout=0.2) as client:
            with pytest.raises(Uncertain, match=r"did not read what was sent within 0\.2 s") as caught:
                await client.publish_many((bytes(2**20) for _ in range(50)), queue=None if protocol == "sspq" else "q")
            assert len(caught.value.messages) == 1
            assert caught.value.published is not None
            assert not caught.value.published.confirmed
            stop.set()

    run(main())


@pytest.mark.parametrize("protocol", ["phpmq", "sspq"])
def test_a_reset_while_publishing_leaves_doubt(protocol: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(100)
        await asyncio.sleep(0.1)
        peer.reset()

    async def main() -> None:
        async with Fake(protocol, script) as fake, aio.connect(fake.url()) as client:
            bodies = (bytes([n]) * 2**20 for n in range(50))
            with pytest.raises(Uncertain, match=r"is unknown, \d+ before them were sent") as caught:
                await client.publish_many(bodies, queue=None if protocol == "sspq" else "q")
            error = caught.value
            assert not error.retriable
            assert error.published is not None
            assert [message.body[0] for message in error.messages] == [error.published.count]

    run(main())


def test_closing_delivers_everything_even_with_bytes_unread() -> None:
    """The broker floods us while we close. A plain close would reset the connection and lose what it has not read."""
    received: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.next()
        peer.send(dispatch("q", *[bytes(1000)] * 1000))
        await asyncio.sleep(0.2)
        received.append(len(await peer.rest()))

    async def main() -> None:
        async with Fake("phpmq", script) as fake:
            async with aio.connect(fake.url("/q")) as client:
                consumer = client.consume(window=1000)
                await anext(consumer)
                await client.publish_many([bytes(1000)] * 500)
            await fake.finished()

    run(main())
    assert received == [500]


def test_closing_does_not_wait_for_a_broker_that_does_not_read() -> None:
    stop = asyncio.Event()

    async def deaf(peer: Peer) -> None:
        await stop.wait()

    async def main() -> None:
        async with Fake("phpmq", deaf) as fake:
            client = await aio.connect(fake.url("/q"))
            started = asyncio.get_running_loop().time()
            await client.close()
            assert asyncio.get_running_loop().time() - started < 4
            stop.set()

    run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_close(protocol: str) -> None:
    async def main() -> None:
        async with Fake(protocol, quiet) as fake:
            client = await aio.connect(fake.url(), reconnect=True)
            queue = None if protocol == "sspq" else "q"
            waiting = asyncio.create_task(client.receive(queue))
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(Closed):
                await waiting
            with pytest.raises(Closed):
                await client.publish(b"x", queue=queue)
            await client.close()

    run(main())


class Certificates:
    """An authority, a server certificate for 'broker.test', and a client certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem")
        for name, extra in (("server", "subjectAltName=DNS:broker.test,IP:127.0.0.1"), ("me", "subjectAltName=DNS:me")):
            (folder / "ext").write_text(extra)
            self._openssl(f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
            sign = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext"
            self._openssl(f"{sign} -out {name}.pem")

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=self.folder, check=True, capture_output=True)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def server(self, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.path("ca.pem"))
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TestTLS:
    def test_publish(self, certificates: Certificates) -> None:
        async def script(peer: Peer) -> None:
            assert await peer.next() == Publish("q", (b"x",), None)

        async def main() -> None:
            async with Fake("phpmq", script, tls=certificates.server()) as fake:
                url = fake.url(f"/q?ca={certificates.path('ca.pem')}")
                async with aio.connect(url) as client:
                    await client.publish(b"x")
                async with aio.connect(url + "&server_name=broker.test") as client:
                    await client.publish(b"x")
                await fake.finished(connections=2)

        run(main())

    def test_mutual(self, certificates: Certificates) -> None:
        async def script(peer: Peer) -> None:
            peer.answer(await peer.next())

        async def main() -> None:
            async with Fake("kokaq", script, tls=certificates.server(mutual=True)) as fake:
                me = TLS(
                    ca=certificates.path("ca.pem"), cert=certificates.path("me.pem"), key=certificates.path("me.key")
                )
                async with aio.connect(fake.url(), tls=me) as client:
                    await client.ping()
                with pytest.raises((Disconnected, ConnectFailed)):
                    async with aio.connect(fake.url(), tls=TLS(ca=certificates.path("ca.pem"))) as client:
                        await client.ping()

        run(main())

    def test_a_rejected_certificate(self, certificates: Certificates) -> None:
        async def main() -> None:
            async with Fake("phpmq", quiet, tls=certificates.server()) as fake:
                for query in ("", f"?ca={certificates.path('ca.pem')}&server_name=other.test"):
                    with pytest.raises(ConnectFailed, match="certificate is not accepted") as caught:
                        await aio.connect(fake.url(query))
                    assert not caught.value.retriable

        run(main())

    def test_tls_to_plain(self, certificates: Certificates) -> None:
        async def http(peer: Peer) -> None:
            peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async def main() -> None:
            async with Fake("phpmq", http) as fake:
                url = fake.url(f"?ca={certificates.path('ca.pem')}").replace("phpmq:", "phpmq+tls:")
                with pytest.raises(ConnectFailed, match="there is no TLS at this address") as caught:
                    await aio.connect(url)
                assert not caught.value.retriable

        run(main())

    def test_a_broker_that_hangs_up_during_the_handshake(self, certificates: Certificates) -> None:
        """Penstock hangs up like this on a port without TLS."""

        async def hang_up(peer: Peer) -> None:
            await peer.reader.read(1000)

        async def main() -> None:
            async with Fake("phpmq", hang_up) as fake:
                url = fake.url(f"?ca={certificates.path('ca.pem')}").replace("phpmq:", "phpmq+tls:")
                reason = "closed the connection during the handshake: there may be no TLS at this address"
                with pytest.raises(ConnectFailed, match=reason):
                    await aio.connect(url)

        run(main())

    def test_plain_to_tls(self, certificates: Certificates) -> None:
        async def main() -> None:
            tls = certificates.server()
            async with Fake("kokaq", quiet, tls=tls) as fake, aio.connect(fake.url().replace("+tls", "")) as client:
                with pytest.raises((ProtocolProblem, Disconnected)):
                    await client.ping()

        run(main())

    def test_invalid_certificate_files(self, tmp_path: Path) -> None:
        async def main() -> None:
            for name in ("missing.pem", "empty.pem"):
                (tmp_path / "empty.pem").touch()
                with pytest.raises(BadURL, match=name):
                    await aio.connect(f"phpmq+tls://127.0.0.1?ca={tmp_path / name}")

        run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_a_connection_that_the_broker_has_just_reset(protocol: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = await aio.connect(f"{protocol}://127.0.0.1:{server.getsockname()[1]}")
            peer = server.accept()[0]
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            await client.close()
            assert not client.parted

    run(main())
