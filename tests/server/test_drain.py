"""How a broker stops: it drains on the first signal, exits at once on the second, and ends when its disk fails."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.folder import load_folder
from support.brokers import BrokerProcess, wait_for
from support.raw import (
    ACQUIRE,
    CONFIRM,
    DEAD_RECEIVE,
    FAIL_INFRA,
    GET,
    NO_RECEIVE,
    NOP,
    POP,
    PUSH,
    RECEIVE,
    SOURCE,
    SUCCESS_OK,
    UUID,
    VERSION,
    Kokaq,
    consume,
    kokaq,
    publish,
    read_answer,
    read_dispatch,
    send,
    sspq,
)

LISTENERS = "\n".join(f'[[{protocol}]]\naddress = "127.0.0.1:0"' for protocol in ("phpmq", "sspq", "kokaq"))


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path, LISTENERS)


def test_the_ready_file(broker: BrokerProcess) -> None:
    """It contains the real addresses, and is removed at exit."""
    with broker:
        ready = json.loads(broker.ready.read_text())
        assert broker.process is not None
        assert ready["pid"] == broker.process.pid
        assert [each["protocol"] for each in ready["listeners"]] == ["phpmq", "sspq", "kokaq"]
        assert broker.stop() == 0
        assert not broker.ready.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_receivers_get_no_receive(broker: BrokerProcess, number: int) -> None:
    """ "NO_RECEIVE, further uses: the server is draining or shutting down"; then the connection ends, exit code 0."""
    with broker:
        one, two = broker.dial("sspq").send(sspq(RECEIVE)), broker.dial("sspq").send(sspq(DEAD_RECEIVE))
        window = broker.dial("phpmq").send(consume("q", 5))
        wait_for(lambda: broker.dial("kokaq", kind=Kokaq).ask(GET, "default/q").outcome == SUCCESS_OK)
        broker.signal(number)
        for peer in (one, two):
            peer.expect(sspq(NO_RECEIVE)).expect_end()
        window.expect_end()
        assert broker.ended() == 0


def test_messages_that_are_out_are_as_if_they_had_not_been_given_out(broker: BrokerProcess) -> None:
    """ "the broker stops: its old place, delivery count unchanged, retry counter unchanged"."""
    with broker:
        kokaq_peer = broker.dial("kokaq", kind=Kokaq)
        consumer = broker.dial("phpmq").send(
            publish("q", b"a"), publish("q", b"b"), publish("q", b"c"), consume("q", 2)
        )
        numbers = [read_dispatch(consumer).id for _ in range(2)]
        broker.dial("sspq").send(send(b"last chance", 0), sspq(RECEIVE)).expect(send(b"last chance", 0))
        assert kokaq_peer.ask(ACQUIRE, "default/q").payload == b"c"
        assert broker.stop() == 0
        broker.start()
        again = broker.dial("kokaq", kind=Kokaq)
        answers = [again.ask(POP, "default/q") for _ in range(3)]
        assert [(answer.payload, answer.number(VERSION)) for answer in answers] == [(b"a", 1), (b"b", 1), (b"c", 1)]
        assert [answer.fields[UUID].hex().encode() for answer in answers[:2]] == numbers
        broker.dial("sspq").send(sspq(RECEIVE)).expect(send(b"last chance", 0)).send(sspq(CONFIRM))


def test_messages_sent_before_the_signal_are_accepted(broker: BrokerProcess) -> None:
    """Clients that send and hang up right before the broker is signalled to stop lose nothing."""
    with broker:
        for _ in range(5):
            broker.dial("sspq").send(*[send(b"x" * 200, 255)] * 1000).close()
            broker.dial("phpmq").send(publish("q", b"y" * 200) * 1000).close()
        assert broker.stop() == 0
        broker.start()
        peer = broker.dial("kokaq", kind=Kokaq)
        assert (peer.depth("default/sspq"), peer.depth("default/q")) == (5000, 5000)


def test_pushes_that_wait_for_their_commit_are_answered(broker: BrokerProcess) -> None:
    with broker:
        peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        peer.send(*[kokaq(PUSH, "default/q", b"m" * 1000) for _ in range(2000)])
        broker.signal()
        confirmed = 0
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                confirmed += read_answer(peer).outcome == SUCCESS_OK
        assert broker.ended() == 0
        broker.start()
        assert broker.dial("kokaq", kind=Kokaq).depth("default/q") >= confirmed > 0


def test_a_clean_checkpoint_is_written(broker: BrokerProcess) -> None:
    with broker:
        broker.dial("kokaq", kind=Kokaq).make("default/q").push("default/q", b"m")
        assert broker.stop() == 0
    disk = RealDisk(broker.data)
    folder = load_folder(disk)
    assert folder is not None
    checkpoint = Checkpoints(disk, folder.identity).newest_good()
    assert checkpoint is not None
    assert checkpoint.clean
    broker.log.unlink()
    with broker:
        assert broker.events("the journal was put right") == []


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A drain waits for a peer that reads nothing; a second signal does not."""
    broker = BrokerProcess(tmp_path, LISTENERS, drain_seconds=60)
    with broker:
        kokaq_peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        deaf = broker.dial("phpmq")
        deaf.send(*[publish("big", bytes(2**20), 0) for _ in range(30)], consume("big", 30))
        uuid = kokaq_peer.push("default/q", b"confirmed")
        wait_for(lambda: kokaq_peer.depth("default/big") == 0)
        broker.signal()
        wait_for(lambda: not broker.ready.exists())
        time.sleep(0.2)
        assert broker.process is not None
        assert broker.process.poll() is None
        broker.signal()
        assert broker.ended() == 1
        assert broker.events("ended at once")
        broker.start()
        again = broker.dial("kokaq", kind=Kokaq)
        assert again.ask(POP, "default/q").fields[UUID] == uuid
        assert again.depth("default/big") == 30


def test_a_drain_has_its_limit(tmp_path: Path) -> None:
    """A peer that reads nothing delays a stop by drain_seconds at most."""
    with BrokerProcess(tmp_path, LISTENERS, drain_seconds=0.5) as broker:
        deaf = broker.dial("phpmq")
        deaf.send(*[publish("big", bytes(2**20), 0) for _ in range(30)], consume("big", 30))
        kokaq_peer = broker.dial("kokaq", kind=Kokaq)
        wait_for(lambda: kokaq_peer.ask(GET, "default/big").outcome == SUCCESS_OK)
        wait_for(lambda: kokaq_peer.depth("default/big") == 0)
        assert broker.stop() == 0


def test_dead_letters_can_be_switched_off_later(tmp_path: Path) -> None:
    """ "no dead-letter queue" is the listener's option, whatever the queue was before."""
    with BrokerProcess(tmp_path, LISTENERS) as broker:
        assert broker.stop() == 0
    off = LISTENERS.replace("[[sspq]]", "[[sspq]]\ndead_letters = false")
    with BrokerProcess(tmp_path, off) as broker:
        broker.dial("sspq").send(send(b"m", 0), sspq(RECEIVE)).expect(send(b"m", 0)).close()
        assert broker.stop() == 0
    with BrokerProcess(tmp_path, off) as broker:
        counters = read_answer(broker.dial("kokaq").send(kokaq(GET, type_byte=0x42)))
        assert b"published=1 acknowledged=0" in counters.fields[0x06]
        assert broker.dial("kokaq", kind=Kokaq).ask(2, "default/sspq").outcome == SUCCESS_OK  # it is empty


def test_a_start_on_a_full_disk(tmp_path: Path) -> None:
    """Publishing is refused from the first connection on, and the health check says why; the broker keeps running."""
    with BrokerProcess(tmp_path, f"{LISTENERS}\n[journal]\nmin_free_bytes = {2**60}") as broker:
        peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        assert peer.ask(PUSH, "default/q", b"m").outcome == FAIL_INFRA
        health = read_answer(peer.send(kokaq(NOP, type_byte=0x42)))
        assert (health.outcome, b"disk" in health.fields[SOURCE]) == (FAIL_INFRA, True)
        assert peer.ask(NOP).outcome == SUCCESS_OK  # a ping does not check health
        assert broker.stop() == 0


def test_a_failed_disk_ends_the_broker(tmp_path: Path) -> None:
    """ "A failed fsync is fatal: stop confirming, stop the broker": here a file that may not grow. Confirmed
    messages are there after a start on a repaired disk; unconfirmed ones were not delivered either."""
    quiet = "\n[journal]\nmin_free_bytes = 0\nsegment_bytes = 1073741824"
    with BrokerProcess(tmp_path, LISTENERS + quiet, largest_file=8 * 2**20) as broker:
        publisher = broker.dial("kokaq", kind=Kokaq).make("default/q")
        consumer = broker.dial("phpmq").send(consume("shown", 1000))
        confirmed: list[bytes] = []
        with contextlib.suppress(EOFError, ConnectionError):
            for number in range(1000):
                broker.dial("phpmq").send(publish("shown", b"%d" % number + bytes(1000))).close()
                confirmed.append(publisher.push("default/q", os.urandom(60_000)))
        assert broker.ended() == 1
        (line,) = broker.events("the broker has ended: nothing was confirmed after this")
        assert "File too large" in line["reason"]
        assert not broker.ready.exists()
        shown = []
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                shown.append(read_dispatch(consumer).payload)
    with BrokerProcess(tmp_path, LISTENERS + quiet) as broker:
        peer = broker.dial("kokaq", kind=Kokaq)
        delivered = [peer.ask(POP, "default/q").fields[UUID] for _ in range(peer.depth("default/q"))]
        assert delivered[: len(confirmed)] == confirmed
        assert len(confirmed) > 50
        assert set(shown) <= set(peer.pop_all("default/shown"))
