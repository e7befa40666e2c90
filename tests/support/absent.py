"""Addresses at which no broker serves, for three different reasons."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def refusing() -> Iterator[str]:
    """The address of a standby: connections are refused, and the port stays reserved."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield _place(closed)


@contextmanager
def stopped() -> Iterator[str]:
    """The address of a stopped or stuck broker: the kernel accepts connections, but nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield _place(listening)


@contextmanager
def silent() -> Iterator[str]:
    """The address of a machine that is gone: connections are neither established nor refused."""
    with socket.socket() as listening, socket.socket() as one, socket.socket() as two:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for each in (one, two):  # they fill the backlog
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        yield _place(listening)


def _place(bound: socket.socket) -> str:
    host, port = bound.getsockname()
    return f"{host}:{port}"
