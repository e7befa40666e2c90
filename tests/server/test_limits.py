"""Every limit is reached over real sockets, while a well-behaved client is served."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from penstock.core import broker as core
from penstock.journal.format.block import MAX_BLOCK
from penstock.server.options.broker_options import MOST_NAMESPACES, MOST_QUEUES, Limits
from support.brokers import Peer, wait_for
from support.good import PLAIN, QUEUE, Good, broker_with, memory_of
from support.raw import (
    ACQUIRE,
    CREATE,
    FAIL_BAD,
    FAIL_NOT_ALLOWED,
    GET,
    NO_RECEIVE,
    NOP,
    PEEK,
    PUSH,
    RECEIVE,
    SUCCESS_OK,
    acknowledge,
    consume,
    kokaq,
    publish,
    read_dispatch,
    send,
    sspq,
)

MEBIBYTE = 2**20
#: The first half of a message, over each protocol.
HALVES = {"phpmq": publish("q", bytes(100))[:60], "sspq": send(bytes(100))[:60], "kokaq": kokaq(PUSH, QUEUE, b"x")[:20]}

PROTOCOLS = ["phpmq", "sspq", "kokaq"]


def is_closed(peer: Peer) -> bool:
    """Whether the other side has closed the connection without sending anything."""
    before = peer.socket.gettimeout()
    peer.socket.settimeout(0.005)
    try:
        return peer.socket.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        peer.socket.settimeout(before)


def send_until_stuck(peer: Peer, data: bytes, times: int) -> int:
    """Send up to ``times`` times, until the other side reads no more. Returns the number of sends."""
    peer.socket.settimeout(0.5)
    for sent in range(times):
        try:
            peer.socket.sendall(data)
        except TimeoutError:
            return sent
    return times


def test_every_limit_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs/limits.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+(?: MiB)?)", page, re.MULTILINE))
    for name, default in structs.asdict(Limits()).items():
        number, _, unit = rows.pop(name).replace(",", "").partition(" ")
        assert int(number) * (MEBIBYTE if unit else 1) == default, name
    assert not rows


# Connections


def test_connections_in_all(tmp_path: Path) -> None:
    with broker_with(tmp_path, "connections = 3") as broker, Good(broker) as good:
        held = [broker.dial("phpmq") for _ in range(2)]
        wait_for(lambda: good.rounds > 1)
        for peer in held:  # these are connected before others use another listener
            peer.send(publish("held", b"x") + consume("held", 1))
            read_dispatch(peer)
        for _ in range(30):
            broker.dial("sspq").expect_end()
        held.pop().close()
        wait_for(lambda: not is_closed(broker.dial("sspq")), "there is room again")
        assert broker.events("too many connections")[0]["limit"] == 3


def test_connections_of_one_address(tmp_path: Path) -> None:
    def from_elsewhere(address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        return socket.create_connection((host, int(port)), 5, ("127.0.0.2", 0))

    with broker_with(tmp_path, "connections_per_address = 2") as broker:
        peers = [broker.dial("phpmq") for _ in range(2)]
        broker.dial("phpmq").expect_end()
        other = from_elsewhere(broker.address("sspq"))
        other.sendall(sspq(RECEIVE) * 2)
        assert other.recv(8) == sspq(NO_RECEIVE)
        assert not any(map(is_closed, peers))
        assert [line["peer"] for line in broker.events("too many connections from one address")] == ["127.0.0.1"]
        other.close()


# Sizes


def test_payloads(tmp_path: Path) -> None:
    messages: dict[str, Callable[[int], bytes]] = {
        "phpmq": lambda size: publish("q", bytes(size)),
        "sspq": lambda size: send(bytes(size)),
        "kokaq": lambda size: kokaq(PUSH, "default/sspq", bytes(size)),
    }
    with broker_with(tmp_path, "payload_bytes = 1000") as broker, Good(broker):
        for protocol, message in messages.items():
            peer = broker.dial(protocol).send(message(1000))
            assert not is_closed(peer)
            peer.send(message(1001)[:-1])  # refused before its last byte
            peer.socket.settimeout(5)
            while peer.socket.recv(65536):
                pass
            assert broker.events("protocol error")[-1]["code"] == "payload-too-large"
        assert [line["protocol"] for line in broker.events("protocol error")] == PROTOCOLS


def test_frames(tmp_path: Path) -> None:
    cases = [
        ("phpmq", publish("n" * 256, b""), "bad-size"),
        ("phpmq", b"H0100102P01" + b"9" * 29, "bad-size"),
        ("sspq", sspq(RECEIVE)[:4] + b"\xff\xff\xff\xff", "payload-too-large"),
        ("kokaq", kokaq(GET, fields=dict.fromkeys(range(65), b"")), "too-many-fields"),
        ("kokaq", kokaq(GET, fields=dict.fromkeys(range(33), bytes(255))), "metadata-too-large"),
    ]
    with broker_with(tmp_path) as broker:
        for protocol, message, _ in cases:
            broker.dial(protocol).send(message).expect_end()
        assert [line["code"] for line in broker.events("protocol error")] == [code for _, _, code in cases]


# Time


def test_messages_that_are_never_finished(tmp_path: Path) -> None:
    """Sending a byte now and then does not help."""
    with broker_with(tmp_path, "unfinished_seconds = 0.5") as broker, Good(broker):
        peers, began = [broker.dial(protocol) for protocol in PROTOCOLS], time.monotonic()
        for at in range(20):
            for peer, protocol in zip(peers, PROTOCOLS, strict=True):
                with suppress(ConnectionError):
                    peer.send(HALVES[protocol][at : at + 1])
            time.sleep(0.1)
            if all(map(is_closed, peers)):
                break
        assert 0.4 < time.monotonic() - began < 5
        lines = broker.events("a message was not finished in time")
        assert sorted(line["protocol"] for line in lines) == sorted(PROTOCOLS)


def test_a_busy_peer_is_not_taken_for_a_slow_one(tmp_path: Path) -> None:
    """Its writes never end at a message boundary, but every message is completed in time."""
    with broker_with(tmp_path, "unfinished_seconds = 0.5") as broker, broker.dial("sspq") as peer:
        package = send(b"0123456789")
        peer.send(package[:9])
        for _ in range(30):
            peer.send(package[9:], package[:9])
            time.sleep(0.05)
        assert not is_closed(peer)


def test_a_message_that_the_broker_did_not_read_is_not_unfinished(tmp_path: Path) -> None:
    limits, full = "unfinished_seconds = 0.3\nrefused_seconds = 1.5", '[queues."default/full"]\nmax_depth = 1'
    with broker_with(tmp_path, limits, full) as broker, broker.dial("phpmq") as peer:
        message = publish("full", b"x")
        peer.send(message * 2, message[:40])
        wait_for(lambda: is_closed(peer))
        assert not broker.events("a message was not finished in time")
        assert len(broker.events("publish refused")) == 1


def test_idle_peers_and_waiting_ones(tmp_path: Path) -> None:
    """A peer that waits for a message is not idle."""
    with broker_with(tmp_path, "idle_seconds = 0.5") as broker, Good(broker):
        waiting = broker.dial("phpmq").send(consume("q", 1))
        idle = [broker.dial(protocol) for protocol in PROTOCOLS]
        wait_for(lambda: all(map(is_closed, idle)))
        assert not is_closed(waiting)
        assert len(broker.events("idle for too long")) == 3


# Backlogs of requests and answers


@pytest.mark.parametrize(
    ("protocol", "requests"),
    [("kokaq", kokaq(NOP)), ("kokaq", kokaq(PEEK, "default/large")), ("sspq", sspq(RECEIVE))],
    ids=["small answers", "large answers", "refusals"],
)
def test_a_peer_that_asks_and_does_not_read(tmp_path: Path, protocol: str, requests: bytes) -> None:
    with broker_with(tmp_path) as broker:
        with broker.kokaq() as first:
            first.make("default/large").push("default/large", bytes(60_000))
        with Good(broker):
            before = memory_of(broker)
            peer = broker.dial(protocol)
            sent = send_until_stuck(peer, requests * 1000, 3000)
            assert sent < 3000, "the broker read without bound"
            assert memory_of(broker) - before < 40 * MEBIBYTE
            peer.reset()
            wait_for(lambda: memory_of(broker) - before < 30 * MEBIBYTE)


def test_a_peer_that_reads_late_gets_all_its_answers(tmp_path: Path) -> None:
    """A hundred thousand answers, in order."""
    count = 100_000
    with broker_with(tmp_path, "pipelined_requests = 100\noutput_bytes = 10_000") as broker:
        peer = broker.dial("kokaq")
        requests = b"".join(kokaq(NOP, opaque=number.to_bytes(4, "big")) for number in range(count))
        peer.socket.setblocking(False)
        sent = 0
        answers = bytearray()
        deadline = time.monotonic() + 30
        while len(answers) < 12 * count and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                sent += peer.socket.send(requests[sent : sent + 60_000])
            try:
                answers += peer.socket.recv(300_000)
            except BlockingIOError:
                time.sleep(0.001)
        assert [answers[at + 4 : at + 8] for at in range(0, len(answers), 12)] == [
            number.to_bytes(4, "big") for number in range(count)
        ]


# Messages out


def test_windows_are_cut_down(tmp_path: Path) -> None:
    with broker_with(tmp_path, "window = 10\nmessages_out = 15") as broker, Good(broker):
        peer = broker.dial("phpmq")
        for queue in ("one", "two"):
            peer.send(publish(queue, b"x") * 30, consume(queue, 65_535))
        got = [read_dispatch(peer) for _ in range(15)]
        time.sleep(0.1)
        assert [sum(each.queue == queue for each in got) for queue in ("one", "two")] == [10, 5]
        peer.send(acknowledge(got[0].queue, got[0].id))
        assert read_dispatch(peer).queue == got[0].queue
        peer.send(publish("three", b"x"), consume("three", 1))
        assert not is_closed(peer)
        assert [line["window"] for line in broker.events("window cut down: too many messages out")] == [5, 0]


def test_locks(tmp_path: Path) -> None:
    with broker_with(tmp_path, "messages_out = 2") as broker, broker.kokaq() as peer:
        peer.make("default/q")
        for _ in range(3):
            peer.push("default/q", b"x")
        outcomes = [peer.ask(ACQUIRE, "default/q").outcome for _ in range(3)]
        assert outcomes == [SUCCESS_OK, SUCCESS_OK, FAIL_NOT_ALLOWED]


def test_a_consumer_that_stops_reading(tmp_path: Path) -> None:
    """Its messages stay in the journal until it reads them, and go back when it disconnects."""
    count, size = 2000, 64 * 1024  # twice the cache for blocks read from disk
    with broker_with(tmp_path) as broker, broker.dial("phpmq") as publisher:
        for _ in range(count // 100):
            publisher.send(publish("big", bytes(size)) * 100)
        with broker.kokaq() as watch, Good(broker):
            watch.wait_for_depth("default/big", count)
            before = memory_of(broker)
            peer = broker.dial("phpmq").send(consume("big", 65_535))
            watch.wait_for_depth("default/big", 0)
            time.sleep(0.3)
            assert memory_of(broker) - before < 80 * MEBIBYTE
            peer.close()
            watch.wait_for_depth("default/big", count)


def test_a_closed_peer_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    """Its messages go back promptly, despite output that it never reads."""
    with broker_with(tmp_path) as broker, broker.kokaq() as watch:
        peer = broker.dial("phpmq").send(publish("q", bytes(MEBIBYTE)) * 20)
        watch.wait_for_depth("default/q", 20)
        peer.send(consume("q", 20))
        watch.wait_for_depth("default/q", 0)
        peer.send(b"garbage")
        watch.wait_for_depth("default/q", 20)
        peer.close()


# Memory for everything


def test_unfinished_messages_of_many(tmp_path: Path) -> None:
    """The peer whose message has been unfinished for longest is closed first; a new one is served."""
    with broker_with(tmp_path, f"memory_bytes = {16 * MEBIBYTE}") as broker:
        half = send(bytes(2 * MEBIBYTE))[:-1]
        peers = [broker.dial("sspq").send(half) for _ in range(9)]
        with Good(broker):
            wait_for(lambda: sum(map(is_closed, peers)) >= 5, "no peer was closed")
            last = broker.dial("sspq").send(half)
            wait_for(lambda: sum(map(is_closed, peers)) >= 6, "no peer was closed to make room")
            last.send(b"\0", sspq(RECEIVE))
            assert len(last.read(8 + 2 * MEBIBYTE)) > 8
        (first, *_) = broker.events("memory is short: the slowest peer is closed")
        assert first["limit"] == 8 * MEBIBYTE


# Queues, namespaces, names


def test_queues_and_namespaces_and_names(tmp_path: Path) -> None:
    limits = "queues = 5\nnamespaces = 2\nname_bytes = 10"
    listeners = PLAIN + '[[kokaq]]\naddress = "127.0.0.1:0"\ncreate_queues = true\n'
    with broker_with(tmp_path, limits, listeners=listeners) as broker, Good(broker):
        peer = broker.kokaq()
        assert peer.ask(CREATE, "second/").outcome == SUCCESS_OK
        assert peer.ask(CREATE, "third/").outcome == FAIL_NOT_ALLOWED
        assert peer.ask(CREATE, "second/elevenbytes").outcome == FAIL_NOT_ALLOWED
        assert [peer.ask(CREATE, f"second/{number}").outcome for number in range(4)] == [SUCCESS_OK] * 3 + [
            FAIL_NOT_ALLOWED
        ]
        creating = broker.kokaq(1)
        assert creating.ask(PUSH, "second/9", b"x").outcome == FAIL_NOT_ALLOWED
        assert peer.ask(PUSH, "second/9", b"x").outcome == FAIL_BAD
        broker.dial("phpmq").send(publish("more", b"x")).expect_end()
        creating.send(kokaq(PUSH, "second/9", b"x", type_byte=0xC0)).expect_end()
        assert {line["protocol"] for line in broker.events("queue not made")} == {"phpmq", "kokaq"}


def test_a_list_of_the_maximum_number_of_queues_fits_into_a_block() -> None:
    """With names of any length and content, because every start, and every segment, begins with that list."""

    def size() -> int:
        broker.log.take()
        broker.catalogue(1)
        return broker.log.size

    broker = core.Broker()
    empty = size()
    name = "\x01" * 255
    broker.create_namespace(name, 1)
    namespace = size() - empty
    queue = broker.create_queue(name, name, 1)
    for counter in queue.counters.as_dict():
        setattr(queue.counters, counter, 2**50)
    each = size() - namespace - empty
    assert empty + MOST_NAMESPACES * namespace + MOST_QUEUES * each < MAX_BLOCK


# Refused publishes

FULL = '[queues."default/full"]\nmax_depth = 2\n[queues."default/sspq"]\nmax_depth = 2'
PUBLISHES = {
    "phpmq": publish("full", b"x"),
    "sspq": send(b"x"),
    "kokaq": kokaq(PUSH, "default/full", b"x", type_byte=0xC0),
}


def test_a_refused_publish_waits_and_then_ends_its_connection(tmp_path: Path) -> None:
    with broker_with(tmp_path, "refused_seconds = 0.6", FULL) as broker, Good(broker):
        began = time.monotonic()
        peers = [broker.dial(protocol).send(PUBLISHES[protocol] * 3) for protocol in PROTOCOLS]
        wait_for(lambda: all(map(is_closed, peers)))
        assert time.monotonic() - began > 0.5
        assert [line["reason"] for line in broker.events("publish refused")] == ["the queue is full"] * 3


def test_a_refused_publish_is_accepted_once_there_is_room(tmp_path: Path) -> None:
    with broker_with(tmp_path, tables=FULL) as broker, broker.kokaq() as watch:
        for protocol in PROTOCOLS:
            queue = "default/sspq" if protocol == "sspq" else "default/full"
            peer = broker.dial(protocol).send(PUBLISHES[protocol] * 5)
            watch.wait_for_depth(queue, 2)
            taken: list[bytes] = []
            while len(taken) < 5:
                taken += watch.pop_all(queue)
            assert not is_closed(peer)


def test_a_refused_publish_with_messages_out_ends_at_once(tmp_path: Path) -> None:
    """The peer's acknowledgements are queued behind the publish, so waiting would not help."""
    with broker_with(tmp_path, tables=FULL) as broker:
        peer = broker.dial("phpmq").send(publish("full", b"x"), consume("full", 1))
        read_dispatch(peer)
        began = time.monotonic()
        peer.send(publish("full", b"x") * 3)
        wait_for(lambda: is_closed(peer))
        assert time.monotonic() - began < 10
        assert len(broker.events("publish refused")) == 1


def test_kokaq_publish_is_refused(tmp_path: Path) -> None:
    with broker_with(tmp_path, tables=FULL) as broker, broker.kokaq() as peer:
        outcomes = [peer.ask(PUSH, "default/full", b"x").outcome for _ in range(3)]
        assert outcomes == [SUCCESS_OK, SUCCESS_OK, FAIL_NOT_ALLOWED]
        assert not broker.events("publish refused")


# Peeks


def test_peeks_whose_answers_are_not_read(tmp_path: Path) -> None:
    """They take part of the memory limit, and it goes back to the system when they are gone."""
    size, limit = 8 * MEBIBYTE, 64 * MEBIBYTE
    with broker_with(tmp_path, f"memory_bytes = {limit}") as broker:
        broker.dial("phpmq").send(publish("large", bytes(size)))
        with broker.kokaq() as watch:
            watch.wait_for_depth("default/large", 1)
        with Good(broker):
            before = memory_of(broker)
            peers = [broker.dial("kokaq").send(kokaq(PEEK, "default/large")) for _ in range(30)]
            most = 0
            for _ in range(100):
                most = max(most, memory_of(broker))
                time.sleep(0.01)
            assert most - before < limit
            for peer in peers:
                peer.reset()
            wait_for(lambda: memory_of(broker) - before < 2 * size, "memory was not given back")
