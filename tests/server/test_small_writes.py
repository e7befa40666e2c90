"""Clients that leave Nagle's algorithm on, as most do, get their answers as fast as those that turn it off.

The second of two small writes waits in the client's kernel for the acknowledgement of the first. If the broker's
kernel delays that, each round takes as long as the delay. The test counts such rounds, and compares with the same
client with TCP_NODELAY, because a busy machine delays both. ``python -m benches.small_writes`` measures the rates.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise

import pytest

from benches.small_writes import WORKERS, Client
from server.conftest import Rig
from support.raw import NOP, SUCCESS_OK, Kokaq, kokaq, read_answer

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux acknowledges when asked to")

ROUNDS = 40
#: Seconds by which Linux delays an acknowledgement at least, less one tick of its clock.
DELAY = 0.036
#: The offset of the number of received segments in Linux's tcp_info.
SEGMENTS_IN = 140


def stalls(act: Callable[[], object]) -> int:
    """The number of rounds that took as long as a delayed acknowledgement."""
    times = [time.monotonic()]
    for _ in range(ROUNDS):
        act()
        times.append(time.monotonic())
    return sum(after - before > DELAY for before, after in pairwise(times))


@pytest.mark.parametrize("rig", ["tcp", "tls"], indirect=True)
@pytest.mark.parametrize("protocol", WORKERS)
def test_a_client_with_nagle_waits_for_no_acknowledgement(rig: Rig, protocol: str) -> None:
    kind: type[Client] = WORKERS[protocol][0]
    counts = {}
    for nodelay in (True, False):
        queue = f"{rig.queue}-{nodelay}" if protocol == "kokaq" else f"{rig.name}-{nodelay}"
        with closing(kind(rig.address(protocol), queue, nodelay=nodelay, tls=rig.transport == "tls")) as client:
            client.begin(ROUNDS)
            counts[nodelay] = stalls(client.round)
    assert counts[False] <= counts[True] + ROUNDS // 2


@pytest.mark.parametrize("rig", ["tls"], indirect=True)
def test_the_first_request_over_tls_does_not_wait_for_the_end_of_the_handshake(rig: Rig) -> None:
    """The client's last handshake message has no answer, so its first request is a second small write."""

    def first_answer(nodelay: bool) -> None:
        with Kokaq(rig.address("kokaq"), tls=True, nodelay=nodelay) as peer:
            assert peer.ask(NOP).outcome == SUCCESS_OK

    assert stalls(lambda: first_answer(nodelay=False)) <= stalls(lambda: first_answer(nodelay=True)) + ROUNDS // 2


def test_answers_carry_the_acknowledgement(tcp_rig: Rig) -> None:
    """No separate acknowledgement is sent, which would cost both sides."""
    peer = tcp_rig.kokaq()

    def segments_in() -> int:
        raw = peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGMENTS_IN + 4)
        return int(struct.unpack_from("=I", raw, SEGMENTS_IN)[0])

    peer.ask(NOP)
    before = segments_in()
    for _ in range(ROUNDS):
        peer.send(kokaq(NOP))
        assert read_answer(peer).outcome == SUCCESS_OK
    assert segments_in() - before <= ROUNDS + ROUNDS // 2
