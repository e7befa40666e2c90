"""The PROXY protocol, version 2: valid and hostile bytes; and a broker's view of clients behind a load balancer."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.network.access import Peer
from penstock.server.network.proxy_protocol import (
    FIXED,
    MOST,
    SIGNATURE,
    ProxyError,
    client_of,
    length_of,
    read_header,
)
from support.brokers import BrokerProcess, dial
from support.certificates import Authority
from support.raw import NO_RECEIVE, RECEIVE, sspq

#: From the specification: 0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A.
MARK = bytes.fromhex("0d0a0d0a000d0a515549540a")
LOCAL = MARK + b"\x20\x00\x00\x00"


def header(source: str, port: int = 40_000, *, additions: bytes = b"") -> bytes:
    """A header for a client at this address, from an independent encoder."""
    address = ipaddress.ip_address(source)
    kind = 0x11 if address.version == 4 else 0x21
    rest = address.packed + address.packed + struct.pack(">HH", port, 9100) + additions
    return MARK + bytes([0x21, kind]) + struct.pack(">H", len(rest)) + rest


def read(data: bytes, *cuts: int) -> Peer | None:
    """Read a header that arrives in pieces, and check that no byte after it is consumed."""

    async def main() -> Peer | None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            reading = asyncio.ensure_future(read_header(ours))
            for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
                theirs.sendall(data[begin:end])
                await asyncio.sleep(0)
            theirs.sendall(b"!")
            theirs.shutdown(socket.SHUT_WR)
            peer = await reading
            assert ours.recv(100) == b"!"
            return peer

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "client"),
    [
        (header("192.0.2.7", 4711), Peer("192.0.2.7", port=4711)),
        (header("2001:db8::7", 4711), Peer("2001:db8::7", port=4711)),
        (header("::ffff:192.0.2.7", 1), Peer("::ffff:c000:207", port=1)),
        (header("192.0.2.7", 4711, additions=b"\x04\x00\x03abc\x05\x00\x00"), Peer("192.0.2.7", port=4711)),
        (header("192.0.2.7", 1, additions=b"\x04\x0f\xf1" + bytes(MOST - 15)), Peer("192.0.2.7", port=1)),
        (MARK + b"\x21\x31\x00\xd8" + bytes(216), Peer("unix")),
        (LOCAL, None),
        (MARK + b"\x20\x11\x00\x0c" + bytes(12), None),
        (MARK + b"\x20\xff\x00\x02no", None),
        (MARK + b"\x21\x00\x00\x00", None),
        (MARK + b"\x21\x00\x00\x04\x04\x00\x01x", None),
    ],
)  # fmt: skip
def test_vectors(data: bytes, client: Peer | None) -> None:
    assert read(data) == client
    for cut in range(1, min(len(data), 40)):
        assert read(data, cut) == client


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"H0100102", "does not begin with a PROXY header"),
        (b"\r\n\r\n\0\r\nQUIX", "does not begin with a PROXY header"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 9100\r\n", "version 1 of the PROXY protocol is not understood"),
        (MARK + b"\x11\x11\x00\x0c", "version and command 0x11 are not known"),
        (MARK + b"\x22\x11\x00\x0c", "version and command 0x22 are not known"),
        (MARK + b"\x21\x12\x00\x0c", "family and transport 0x12 are no stream"),
        (MARK + b"\x21\x10\x00\x0c", "family and transport 0x10 are no stream"),
        (MARK + b"\x21\x41\x00\x0c", "family and transport 0x41 are no stream"),
        (MARK + b"\x21\x11\x00\x0b" + bytes(11), "have 12 bytes, and its header has 11"),
        (MARK + b"\x21\x21\x00\x0c" + bytes(12), "have 36 bytes, and its header has 12"),
        (MARK + b"\x21\x31\x00\xd7" + bytes(215), "have 216 bytes"),
        (MARK + b"\x21\x11\x10\x01", "has 4097 bytes after the first 16, and 4096 are the most"),
        (MARK + b"\x20\x00\xff\xff", "has 65535 bytes"),
        (header("192.0.2.7", additions=b"\x04"), "is cut short"),
        (header("192.0.2.7", additions=b"\x04\x00"), "is cut short"),
        (header("192.0.2.7", additions=b"\x04\x00\x02x"), "is cut short"),
        (header("192.0.2.7", additions=b"\x04\xff\xffx"), "is cut short"),
        (b"", "ended before"),
        (MARK[:5], "ended before"),
        (header("192.0.2.7")[:-1], "ended before"),
    ],
)
def test_hostile_headers(data: bytes, complaint: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            await read_header(ours)

    with pytest.raises(ProxyError, match=complaint):
        asyncio.run(main())


def test_a_missing_header_is_refused_at_once() -> None:
    """Otherwise a client that waits for an answer would wait until the timeout."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.sendall(b"H")
            async with asyncio.timeout(5):
                await read_header(ours)

    with pytest.raises(ProxyError):
        asyncio.run(main())


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=300))
def test_anything_is_a_client_or_an_error(head: bytes, rest: bytes) -> None:
    fixed = SIGNATURE + head[:2] + struct.pack(">H", len(rest))
    try:
        assert length_of(fixed) == len(rest) <= MOST
        client_of(fixed, rest)
    except ProxyError:
        pass


@given(
    st.ip_addresses(),
    st.integers(0, 65_535),
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8),
)
def test_every_address_comes_back(address: object, port: int, additions: list[tuple[int, bytes]]) -> None:
    more = b"".join(bytes([kind]) + struct.pack(">H", len(value)) + value for kind, value in additions)
    data = header(str(address), port, additions=more)
    assert length_of(data[:FIXED]) == len(data) - FIXED
    assert client_of(data[:FIXED], data[FIXED:]) == Peer(str(address), port=port)


# With a broker


def behind(folder: Path, listener: str = "", rest: str = "") -> BrokerProcess:
    """A broker with one SSPQ listener behind a load balancer, and one without."""
    behind = f'[[sspq]]\naddress = "127.0.0.1:0"\nproxy_protocol = true\n{listener}\n'
    return BrokerProcess(folder, f'{behind}[[sspq]]\naddress = "127.0.0.1:0"\nqueue = "default/plain"\n{rest}')


def is_served(channel: socket.socket) -> bool:
    try:
        channel.sendall(sspq(RECEIVE) * 2)
        return channel.recv(8) == sspq(NO_RECEIVE)
    except OSError:
        return False


def is_ended(channel: socket.socket) -> bool:
    """Whether the broker has closed the connection, by a reset if bytes were unread."""
    try:
        return channel.recv(1) == b""
    except ConnectionResetError:
        return True


def test_rules_limits_and_logs_know_the_client(tmp_path: Path) -> None:
    rest = (
        "[limits]\nconnections_per_address = 2\nunfinished_seconds = 0.5\n"
        '[[access]]\nnetwork = "192.0.2.0/24"\nmay = ["consume"]\n'
    )
    with behind(tmp_path, rest=rest) as broker, ExitStack() as kept:
        place = broker.address("sspq", 0)
        for source in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"):
            client = kept.enter_context(dial(place))
            client.sendall(header(source))
            assert is_served(client), "the connections of one load balancer share no limit"
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)  # its first request waits for a message, so it is permitted
        with dial(place) as third:
            third.sendall(header("192.0.2.1"))
            assert is_ended(third), "this client's third connection must be refused"
        with dial(place) as other:
            other.sendall(header("198.51.100.1") + sspq(RECEIVE))
            assert other.recv(8) == sspq(NO_RECEIVE), "this client has no right"
        for first in (sspq(RECEIVE), b"PROXY TCP4 192.0.2.1 192.0.2.1 1 1\r\n"):
            with dial(place) as without:
                without.sendall(first)
                assert is_ended(without)
        with dial(place) as slow:
            slow.sendall(header("192.0.2.9")[:20])
            assert is_ended(slow)
        with dial(place) as check:
            check.sendall(LOCAL + sspq(RECEIVE))
            assert check.recv(8) == sspq(NO_RECEIVE), "the load balancer itself has no right"
        with dial(broker.address("sspq", 1)) as plain:
            plain.sendall(header("192.0.2.1"))
            assert is_ended(plain), "without the option, a header is an invalid message"
        reasons = [line["reason"] for line in broker.events("no PROXY header taken")]
        assert [reason.split(",")[0] for reason in reasons] == [
            "it does not begin with a PROXY header",
            "version 1 of the PROXY protocol is not understood; send version 2 (send-proxy-v2)",
            "its PROXY header was not whole within 0.5 s",
        ]
        assert [line["peer"] for line in broker.events("too many connections from one address")] == ["192.0.2.1"]


def test_tls_comes_after_the_header(tmp_path: Path) -> None:
    signed = Authority(tmp_path / "ca").sign("localhost")
    tls = f'tls_certificate = "{signed.path}"\ntls_key = "{signed.key}"'
    with behind(tmp_path, tls) as broker, dial(broker.address("sspq", 0)) as plain:
        plain.sendall(header("192.0.2.1"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(plain) as channel:
            assert is_served(channel)


def test_only_from_configured_addresses(tmp_path: Path) -> None:
    with behind(tmp_path, 'proxy_from = ["127.0.0.2", "10.0.0.0/8"]') as broker:
        host, _, port = broker.address("sspq", 0).rpartition(":")
        with socket.create_connection((host, int(port)), 5, ("127.0.0.2", 0)) as named:
            named.sendall(header("192.0.2.1"))
            assert is_served(named)
        with socket.create_connection((host, int(port)), 5) as other:
            assert is_ended(other)
        assert broker.events("no PROXY header taken")[0]["reason"] == "it is not in proxy_from"
