"""Slow and stalled HTTP clients, and the clients that must still be served."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.admin.acceptor import HANDSHAKES, Acceptor, oldest_of_most
from penstock.admin.app import ANONYMOUS_BODY_BYTES
from penstock.admin.connections import AUTHENTICATED, UNAUTHENTICATED
from penstock.admin.http_process import listen
from penstock.admin.parsing import PIECE, Input
from support.brokers import companion
from support.certificates import Authority, client_context
from support.web import Api, WebBroker, eventually

#: More clients than the server keeps, whatever each of them has sent.
CROWD = AUTHENTICATED + UNAUTHENTICATED + 50
#: More than the system buffers for a connection at both ends, and than the process reads at a time.
READ_AHEAD = 64 * 2**20
LOGIN = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEGUN = {
    "nothing": b"",
    "a head": b"GET /healthz HTTP/1.1\r\nHost:",
    "a body": LOGIN + b'Content-Length: 90\r\n\r\n{"token": "',
    "a chunked body": LOGIN + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"tok',
    "a publish": b"POST /api/v1/queues/default/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
}


def _dial(api: Api) -> socket.socket:
    where = urlsplit(api.address)
    return socket.create_connection((where.hostname, where.port), timeout=20)


@contextmanager
def _crowd(api: Api, begun: bytes, size: int = CROWD) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = []
        for _ in range(size):
            clients.append(stack.enter_context(_dial(api)))
            with suppress(OSError):  # it was closed to make room for another client
                clients[-1].sendall(begun)
        yield clients


def check_others_are_served(api: Api) -> None:
    """Check that probes, metrics, the API and logins are answered."""
    for path in ("/healthz", "/readyz", "/", "/metrics", "/api/v1/overview"):
        assert api.ask("GET", path).status == 200, path
    assert api.with_token("").ask("POST", "/api/v1/session", {"token": api.token}).status == 200


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_clients_without_a_token_keep_no_one_out(api: Api, begun: bytes) -> None:
    with _crowd(api, begun):
        check_others_are_served(api)


def test_unfinished_requests_with_a_token_do_not_block_probes(tmp_path: Path) -> None:
    """They fill the limit for authenticated requests; probes and logins do not count against it."""
    with WebBroker(tmp_path) as broker:
        api = broker.api
        api.do("PUT", "queues/default/q", {})
        head = b"POST /api/v1/queues/default/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        head += b"Expect: 100-continue\r\nAuthorization: Bearer " + api.token.encode() + b"\r\n\r\n"
        with ExitStack() as stack:
            for _ in range(AUTHENTICATED):
                client = stack.enter_context(_dial(api))
                client.sendall(head)
                assert client.recv(12) == b"HTTP/1.1 100"  # the token is valid, and the server awaits the body
            late = api.ask("GET", "/api/v1/overview")
            assert (late.status, late.value["code"]) == (429, "too-many")
            assert Api(api.address).ask("GET", "/healthz").status == 200
            assert Api(api.address).ask("GET", "/readyz").status == 200
        eventually(lambda: api.ask("GET", "/api/v1/overview").status == 200)


def test_idle_connections_keep_no_one_out(api: Api) -> None:
    head = (
        b"GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + api.token.encode() + b"\r\n\r\n"
    )
    with _crowd(api, head, AUTHENTICATED + 50) as clients:
        assert clients[-1].recv(12) == b"HTTP/1.1 200"
        check_others_are_served(api)


def test_unfinished_tls_handshakes_keep_no_one_out(tmp_path: Path) -> None:
    made = Authority(tmp_path / "authority").sign("localhost")
    http = {"address": "127.0.0.1:0", "tls_certificate": str(made.path), "tls_key": str(made.key)}
    with WebBroker(tmp_path, http=http) as broker:
        where = Api(broker.addresses["http"])
        crowd = _crowd(where, b"\x16\x03\x01", 3 * HANDSHAKES)
        with crowd, _dial(where) as plain, client_context().wrap_socket(plain) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            # Evicted handshakes are freed: each takes a file descriptor and 300 kB.
            assert len(list(Path(f"/proc/{companion(broker, 'penstock.admin')}/fd").iterdir())) < HANDSHAKES + 100


def test_clients_that_do_not_read_their_answers_are_evicted(broker: WebBroker) -> None:
    """Unread answers exceed the system's buffers: an answer in flight does not protect a connection from eviction."""
    where = urlsplit(broker.api.address)
    pipelined = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    before = _files(broker)
    with ExitStack() as stack:
        for _ in range(UNAUTHENTICATED + 20):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(20)
            client.connect((where.hostname, where.port))
            client.sendall(pipelined)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert _files(broker) - before <= UNAUTHENTICATED + 5
        check_others_are_served(broker.api)


def test_clients_that_do_not_close_tls_are_evicted(tmp_path: Path) -> None:
    """TLS shutdown waits for the client's close-notify, which may never come."""
    made = Authority(tmp_path / "authority").sign("localhost")
    http = {"address": "127.0.0.1:0", "tls_certificate": str(made.path), "tls_key": str(made.key)}
    with WebBroker(tmp_path, http=http) as broker, ExitStack() as stack:
        where, context, before = Api(broker.addresses["http"]), client_context(), _files(broker)
        for _ in range(UNAUTHENTICATED + 20):
            plain = stack.enter_context(_dial(where))
            client = stack.enter_context(context.wrap_socket(plain))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        assert _files(broker) - before <= UNAUTHENTICATED + 5


def _files(broker: WebBroker) -> int:
    """How many files the HTTP process has open, most of them connections."""
    return len(os.listdir(f"/proc/{companion(broker, 'penstock.admin')}/fd"))


def test_a_head_is_small_however_it_arrives(api: Api) -> None:
    """A head of 60,000 headers is not parsed in one go."""
    with _dial(api) as client:
        with suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 60_000 + b"\r\n")
        assert not _answers(client).startswith(b"HTTP/1.1 200")


def test_a_body_that_is_too_large_without_a_token_ends_its_connection(api: Api) -> None:
    """Tiny chunks take long to parse: none is parsed after the answer."""
    with _dial(api) as client:
        with suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(LOGIN + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000)
        assert b"connection: close" in _answers(client).lower()


def test_tiny_chunks_are_parsed_one_connection_at_a_time() -> None:
    """Only one large read is parsed in each turn of the loop; small reads are not delayed."""
    pieces: list[int] = []

    class Recorder:
        """A connection that records the pieces it would parse."""

        authenticated = False

        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.input = Input(self)

        def parse(self, data: bytes) -> None:
            pieces.append(len(data))
            self.input.enqueue()

        def pause_reading(self) -> None:
            pass

    async def main() -> None:
        clients = [Recorder() for _ in range(20)]
        for client in clients:
            client.input.receive(b"x" * 3 * PIECE)
        Recorder().input.receive(b"GET")
        assert pieces == [3]
        for turn in range(1, 3 * len(clients) + 1):
            await asyncio.sleep(0)
            assert pieces == [3, *[PIECE] * turn]
        assert not any(client.input for client in clients)

    asyncio.run(main())


def _answers(client: socket.socket) -> bytes:
    """Everything received until the server closes."""
    answers = b""
    with suppress(ConnectionResetError):
        while part := client.recv(10_000):
            answers += part
    return answers


def test_a_body_without_a_token_is_small(api: Api) -> None:
    body = b'{"token": "' + b"x" * ANONYMOUS_BODY_BYTES + b'"}'
    problem = Api(api.address).refused("POST", "session", body)
    assert (problem["status"], problem["field"]) == (413, "body")


def test_a_body_of_two_lengths_is_refused_and_its_connection_closed(api: Api) -> None:
    """A proxy that uses the other length would take the rest for the next client's request."""
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    lengths, body = b"Content-Length: 3\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"
    with _dial(api) as client:
        client.sendall(
            b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n" + lengths + b"\r\n\r\n" + body + smuggled
        )
        answers = _answers(client)
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in head.lower()
    assert b"HTTP/1.1" not in rest
    assert b"header.Transfer-Encoding" in rest


@pytest.mark.parametrize("begun", list(BEGUN.values())[:4], ids=list(BEGUN)[:4])
def test_an_unfinished_request_ends_its_connection(tmp_path: Path, begun: bytes) -> None:
    with WebBroker(tmp_path, limits={"unfinished_seconds": 1}) as broker, _dial(broker.api) as client:
        client.sendall(begun)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
        assert broker.api.ask("GET", "/healthz").status == 200


def test_an_answer_that_is_not_read_ends_its_connection(tmp_path: Path) -> None:
    """Requests are repeated until the answers exceed the system's buffers."""
    with WebBroker(tmp_path, limits={"unfinished_seconds": 1}) as broker:
        where = urlsplit(broker.api.address)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(20)
            client.connect((where.hostname, where.port))
            client.setblocking(False)
            pipelined = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
            eventually(lambda: _is_cut_off(client, pipelined))


def _is_cut_off(client: socket.socket, more: bytes) -> bool:
    try:
        client.send(more)
    except (ConnectionResetError, BrokenPipeError):
        return True
    except BlockingIOError:
        pass
    return False


def test_pipelined_requests_wait_in_the_buffers_of_the_system(api: Api) -> None:
    """While a request is handled no further ones are read, so endless pipelining fills the client's own buffers."""
    with _dial(api) as client:
        client.settimeout(3)
        client.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n" + _bearer(api))
        assert client.recv(12) == b"HTTP/1.1 200"
        with pytest.raises(TimeoutError):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500_000)


def test_requests_that_are_pipelined_are_not_read_ahead(api: Api) -> None:
    """Each answer lets the server read one more request, not everything that the client has sent meanwhile."""
    pipelined = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent, answered, rest = 0, 0, b""
    with _dial(api) as client:
        client.setblocking(False)
        while answered < 600:
            readable, writable, _ = select.select([client], [client], [], 20)
            assert readable or writable
            if writable:
                sent += client.send(pipelined * 20_000)
            if readable:
                rest = rest[-9:] + client.recv(1_000_000)
                answered += rest.count(b'{"ok":true')
    assert sent < READ_AHEAD + answered * len(pipelined)


ENDLESS = b'{"query": "select count(*) from range(100000000000) a(i) where i % 7 = 3", "seconds": 60}'
HEADS = {
    "no request": b"BOGUS\r\n\r\n",
    "a head that is too long": b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,
    "an upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n",
}


def test_client_errors_do_not_fill_the_log(tmp_path: Path) -> None:
    """They need no token to cause such errors, and could fill the disk."""
    with WebBroker(tmp_path) as broker:
        for sent in HEADS.values():
            with _dial(broker.api) as client, suppress(ConnectionError):
                client.sendall(sent)
                while client.recv(10_000):
                    pass
        pipelined = b"POST /api/v1/sql HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(ENDLESS)
        with _dial(broker.api) as client:
            client.sendall(pipelined + _bearer(broker.api) + ENDLESS + b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            eventually(lambda: _sql_processes(broker))
        eventually(lambda: not _sql_processes(broker))
        assert broker.stop() == 0
        assert [line for line in broker.log.read_text().splitlines() if not line.startswith("{")] == []


def _sql_processes(broker: WebBroker) -> str:
    pid = companion(broker, "penstock.admin")
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def _bearer(api: Api) -> bytes:
    return b"Authorization: Bearer " + api.token.encode() + b"\r\n\r\n"


def test_answers_are_sent_at_once() -> None:
    """An answer is two small writes: with Nagle's algorithm the second waits 40 ms for the client's acknowledgement."""

    async def no_delay() -> int:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set_result(transport)

        with closing(listen("127.0.0.1:0")) as listening, socket.create_connection(listening.getsockname()):
            acceptor = Acceptor(listening, Protocol, None)
            transport = await made
            found: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            transport.close()
            acceptor.close()
            await acceptor.wait_closed()
        return found

    assert asyncio.run(no_delay()) != 0


def test_the_address_with_most_connections_is_evicted_first() -> None:
    found = [("a", 1), ("b", 2), ("b", 3), ("c", 4), ("b", 5)]
    assert oldest_of_most(found, lambda each: each[0], lambda each: each[1]) == ("b", 2)
    assert oldest_of_most(found[:1], lambda each: each[0], lambda each: each[1]) == ("a", 1)
