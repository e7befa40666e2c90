"""A proxy that breaks: it cuts each connection after a number of bytes from the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cutting:
    """Forwards bytes. Each connection takes a number from ``cuts``, and is cut after that many bytes from the server.

    ``silent``: the proxy goes quiet instead of closing, like a machine that loses its power.
    """

    def __init__(self, target: tuple[str, int], cuts: list[int], *, silent: bool = False) -> None:
        self.cuts = cuts
        self._silent = silent
        #: Number of connections cut.
        self.cut = 0
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._server]
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def address(self) -> str:
        """The proxy's address."""
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                left = self.cuts.pop(0) if self.cuts else None
                for pair in ((client, server, None), (server, client, left)):
                    thread = threading.Thread(target=self._pass, args=pair)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                if left is not None and len(data) > left:
                    self.cut += left >= 0
                    left = -1
                    if self._silent:
                        continue
                    break
                left = None if left is None else left - len(data)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def start(self) -> None:
        """Begin."""
        self._threads[0].start()

    def stop(self) -> None:
        """Cut all connections, and stop."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def cutting(address: str, cuts: list[int], *, silent: bool = False) -> Iterator[Cutting]:
    """Run a proxy in front of an address such as ``grpc://127.0.0.1:8815``."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    proxy = Cutting((host, int(port)), cuts, silent=silent)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
