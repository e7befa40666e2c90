"""Addresses at which no broker serves, in the three ways that there are."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def refusing() -> Iterator[str]:
    """Where a broker stands by: nobody listens, and nobody else will."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield _place(closed)


@contextmanager
def stopped() -> Iterator[str]:
    """Where a broker is stopped or stuck: the system accepts, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield _place(listening)


@contextmanager
def silent() -> Iterator[str]:
    """Where a machine is gone, as far as one can tell: no connection comes about, and none is refused."""
    with socket.socket() as listening, socket.socket() as one, socket.socket() as two:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for each in (one, two):  # they fill the queue of those who wait to be accepted
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        yield _place(listening)


def _place(bound: socket.socket) -> str:
    host, port = bound.getsockname()
    return f"{host}:{port}"
