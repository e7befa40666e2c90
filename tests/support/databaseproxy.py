"""A proxy to PostgreSQL that breaks on request: one way or both, at a statement or a byte, or for a while.

::

    with database_proxy(server.port) as proxy:
        url = proxy.url(server.url("db"))
        proxy.cut_at_statement(3, "after")      # the third from now runs, but its answer is lost
        proxy.hold(); proxy.release()           # nothing passes until the release, then everything
        proxy.swallow("to_client")              # one way: the server's bytes are lost silently
        proxy.cut()                             # both ends see it; new connections work as before
        proxy.swap(0, 1)                        # as a pooler in transaction mode does
        proxy.refuse(); proxy.accept()          # no new connection gets through in between
        proxy.throttle(1_000_000)               # bytes per second each way, for all connections together

A *statement* is the unit that the server answers: a Query or a Sync of the protocol.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Way = Literal["to_server", "to_client"]
BOTH: tuple[Way, Way] = ("to_server", "to_client")
#: Messages of a client that the server answers: Query and Sync.
_ENDS = b"QS"


class Statements:
    """Finds the ends of statements in a client's bytes, which arrive in any pieces."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._started = False
        self._ends = False

    def first_end(self, data: bytes) -> int | None:
        """The offset after the first statement that ends in these bytes, or None."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                at += taken
                self._left -= taken
            else:
                at = self._read_header(data, at)
            if not self._left and self._ends:
                self._ends = False
                return at
        return None

    def _read_header(self, data: bytes, at: int) -> int:
        """The first message has no type byte. SSL and GSS must be off, because their offers would be answered."""
        size = 5 if self._started else 4
        taken = data[at : at + size - len(self._header)]
        self._header += taken
        if len(self._header) == size:
            self._left = int.from_bytes(self._header[-4:]) - 4
            self._ends = self._started and self._header[:1] in _ENDS
            self._started = True
            self._header = b""
        return at + len(taken)


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.sockets: dict[Way, socket.socket] = {"to_server": client, "to_client": server}
        #: The peer of each socket.
        self.targets: dict[Way, socket.socket] = {"to_server": server, "to_client": client}
        self.statements = Statements()
        #: Whether to cut the connection at the next reply.
        self.cut_at_reply = False

    def cut(self) -> None:
        """Close both ends."""
        for each in self.sockets.values():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class DatabaseProxy:
    """Listens on 127.0.0.1, and forwards to another port there."""

    def __init__(self, target: int) -> None:
        #: The target port. May be changed for new connections.
        self.target = target
        #: Statements forwarded.
        self.statements = 0
        #: Connections cut at a statement or a byte.
        self.cuts = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self._links: list[Link] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._changed = threading.Condition()
        self._held: set[Way] = set()
        self._swallowed: set[Way] = set()
        self._refusing = False
        self._statement: tuple[int, str] | None = None
        self._stop_at: int | None = None
        self._bytes: dict[Way, int] = {}
        self._ended = False
        #: Bytes per second, and when the next may pass each way.
        self._rate = 0
        self._free_at: dict[Way, float] = dict.fromkeys(BOTH, 0.0)

    @property
    def port(self) -> int:
        """The proxy's port."""
        return int(self._server.getsockname()[1])

    @property
    def connections(self) -> int:
        """Number of connections since all were cut."""
        return len(self._links)

    @property
    def held(self) -> bool:
        """Whether bytes are held at present."""
        return bool(self._held)

    def url(self, url: str) -> str:
        """The URL of a database through this proxy. TLS is off, so that statements can be seen."""
        parts = urlsplit(url)
        place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        query = "&".join(filter(None, (parts.query, "sslmode=disable", "gssencmode=disable")))
        return parts._replace(netloc=place, query=query).geturl()

    # Faults

    def cut(self) -> None:
        """Cut all connections; both ends see them closed."""
        with self._changed:
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def cut_at_statement(self, number: int, when: Literal["before", "after"]) -> None:
        """Cut at the nth statement from now: either the statement or its answer is lost."""
        with self._changed:
            self._statement = (self.statements + number, when)

    def hold_at_statement(self, number: int) -> None:
        """Hold all bytes after the nth statement from now, as if the client had stopped there."""
        with self._changed:
            self._stop_at = self.statements + number

    def cut_at_byte(self, number: int, way: Way) -> None:
        """Cut after ``number`` more bytes have passed one way."""
        with self._changed:
            self._bytes[way] = number

    def hold(self, *ways: Way) -> None:
        """Hold all bytes until ``release``."""
        self._change(self._held, ways or BOTH)

    def swallow(self, *ways: Way) -> None:
        """Drop bytes silently until ``release``, which cuts the connections that lost some."""
        self._change(self._swallowed, ways or BOTH)

    def release(self) -> None:
        """Let everything pass."""
        lost = bool(self._swallowed)
        with self._changed:
            self._held.clear()
            self._swallowed.clear()
            self._changed.notify_all()
        if lost:
            self.cut()

    def refuse(self) -> None:
        """Cut everything, and close every new connection at once."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Take connections again."""
        self._refusing = False

    def throttle(self, rate: int) -> None:
        """Limit bytes per second each way, for all connections together; 0: no limit."""
        with self._changed:
            self._rate = rate
            self._changed.notify_all()

    def swap(self, one: int, other: int) -> None:
        """Swap the server sessions of two idle connections, as a pooler may between transactions."""
        with self._changed:
            first, second = self._links[one], self._links[other]
            first.targets, second.targets = second.targets, first.targets

    def _change(self, which: set[Way], ways: tuple[Way, ...]) -> None:
        with self._changed:
            which.update(ways)

    # Forwarding

    def start(self) -> None:
        """Begin."""
        self._threads[0].start()

    def stop(self) -> None:
        """Cut everything, and end."""
        self._ended = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join(10)
        with self._changed:
            self._held.clear()
            self._rate = 0
            self._changed.notify_all()
        self.cut()
        for thread in self._threads[1:]:
            thread.join(10)

    def _listen(self) -> None:
        while not self._ended:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            if self._refusing:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(client, server)
        with self._changed:
            self._links.append(link)
        for way in BOTH:
            thread = threading.Thread(target=self._pass, args=(link, way))
            self._threads.append(thread)
            thread.start()

    def _pass(self, link: Link, way: Way) -> None:
        source = link.sockets[way]
        with suppress(OSError):
            while data := source.recv(16384):
                passed = self._judge(link, way, data)
                self._wait_for_turn(way, len(passed))
                if passed:
                    link.targets[way].sendall(passed)
                if len(passed) < len(data) and not self._swallows(way):
                    break
        link.cut()
        source.close()

    def _wait_for_turn(self, way: Way, size: int) -> None:
        with self._changed:
            if not self._rate:
                return
            now = time.monotonic()
            free_at = self._free_at[way] = max(now, self._free_at[way]) + size / self._rate
            self._changed.wait_for(lambda: not self._rate or self._ended, free_at - now)

    def _judge(self, link: Link, way: Way, data: bytes) -> bytes:
        """The part of the bytes that gets through. The rest ends the connection unless it is swallowed."""
        with self._changed:
            self._changed.wait_for(lambda: way not in self._held)
            if way in self._swallowed:
                return b""
            if way == "to_client" and link.cut_at_reply:
                return b""
            if way == "to_server":
                data = self._up_to_statement(link, data)
            return self._up_to_byte(way, data)

    def _up_to_statement(self, link: Link, data: bytes) -> bytes:
        at = 0
        while (end := link.statements.first_end(data[at:])) is not None:
            if self._statement is not None and self.statements + 1 == self._statement[0]:
                when, self._statement = self._statement[1], None
                self.cuts += 1
                if when == "before":
                    return data[:at]
                link.cut_at_reply = True
            self.statements += 1
            at += end
            if self.statements == self._stop_at:
                self._held.update(BOTH)
                self._stop_at = None
        return data

    def _up_to_byte(self, way: Way, data: bytes) -> bytes:
        left = self._bytes.get(way)
        if left is None:
            return data
        if left < len(data):
            del self._bytes[way]
            self.cuts += 1
            return data[:left]
        self._bytes[way] = left - len(data)
        return data

    def _swallows(self, way: Way) -> bool:
        return way in self._swallowed


@contextmanager
def database_proxy(target: int) -> Iterator[DatabaseProxy]:
    """Run a proxy in front of a port of 127.0.0.1."""
    proxy = DatabaseProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
