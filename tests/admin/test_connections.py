"""Clients of HTTP that take their time."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.admin.process import AT_A_TIME
from support.web import Api, WebBroker


def _dialled(api: Api) -> socket.socket:
    where = urlsplit(api.address)
    return socket.create_connection((where.hostname, where.port), timeout=20)


def test_clients_that_ask_for_nothing_keep_nobody_out(api: Api) -> None:
    with ExitStack() as quiet:
        for _ in range(AT_A_TIME + 20):
            quiet.enter_context(_dialled(api))
        assert api.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /healthz HTTP/1.1\r\nHost:", b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "head", "body"],
)
def test_a_request_that_is_not_finished_ends_its_connection(tmp_path: Path, begun: bytes) -> None:
    with WebBroker(tmp_path, limits={"unfinished_seconds": 1}) as broker, _dialled(broker.api) as client:
        client.sendall(begun)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
        assert broker.api.ask("GET", "/healthz").status == 200
