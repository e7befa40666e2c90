"""kill -9 while clients of all three protocols publish and consume: every promise to them still holds.

Three rounds in one data folder by default; ``KILL_ROUNDS=200 pytest tests/server/test_killed_under_load.py`` for many.
After each kill the journal is checked on its own; then the next broker starts on the same folder. The promises:

* every Push confirmed over Kokaq is delivered, at the latest when all queues are emptied at the end;
* a message whose settlement was answered, or journaled, is never delivered again (the last acknowledgements of
  PHPMQ and SSPQ have no answer, and may be lost with the broker);
* no queue has lost or invented a message, according to the journal alone.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.core.recovery.restore import restore
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.schema import FINAL_KINDS, MESSAGE_KINDS, Kind
from penstock.server.engine.engine import recover, table_of
from support.brokers import BrokerProcess, Peer
from support.raw import (
    ACQUIRE,
    CONFIRM,
    DELETE,
    POP,
    PUSH,
    RECEIVE,
    SUCCESS_OK,
    UUID,
    Kokaq,
    acknowledge,
    consume,
    kokaq,
    publish,
    read_answer,
    read_dispatch,
    send,
    sspq,
)

ROUNDS = int(os.environ.get("KILL_ROUNDS", "3"))
LISTENERS = "\n".join(f'[[{protocol}]]\naddress = "127.0.0.1:0"' for protocol in ("phpmq", "sspq", "kokaq"))
#: Small segments, so that kills also hit their beginnings and checkpoints.
CONFIG = f"{LISTENERS}\n[journal]\nsegment_bytes = 262144"
QUEUES = ("default/k", "default/p", "default/sspq")


class Ledger:
    """What clients were promised. Payloads are numbers that are never used twice; IDs are positions in the journal."""

    def __init__(self) -> None:
        self._next = 0
        self._lock = threading.Lock()
        self.confirmed: dict[bytes, int] = {}
        self.settled: set[int] = set()
        self.ended: set[int] = set()
        #: Popped messages: the journal records a pop before the answer leaves.
        self.popped: set[int] = set()
        #: Payloads that a client has received.
        self.delivered: set[bytes] = set()

    def number(self) -> bytes:
        """A new payload."""
        with self._lock:
            self._next += 1
            return b"%d." % self._next + b"x" * (self._next * 7919 % 300)

    def shown(self, payload: bytes, uuid: bytes) -> None:
        """Record a delivery, which must not be of a message settled before an earlier kill."""
        position = position_of(uuid)
        assert position not in self.ended, f"message {position} was delivered after its end was journaled"
        self.delivered.add(payload)


def position_of(uuid: bytes) -> int:
    return int.from_bytes(uuid[8:], "big")


def push(peer: Kokaq, ledger: Ledger) -> None:
    """Two-way pushes, ten at a time."""
    while True:
        payloads = [ledger.number() for _ in range(10)]
        peer.send(*[kokaq(PUSH, "default/k", payload) for payload in payloads])
        for payload in payloads:
            answer = read_answer(peer)
            assert answer.outcome == SUCCESS_OK
            ledger.confirmed[payload] = position_of(answer.fields[UUID])


def publish_phpmq(peer: Kokaq, ledger: Ledger) -> None:
    while True:
        peer.send(*[publish("p", ledger.number()) for _ in range(5)])
        time.sleep(0.002)


def consume_phpmq(peer: Kokaq, ledger: Ledger) -> None:
    peer.send(consume("k", 20))
    while True:
        message = read_dispatch(peer)
        ledger.shown(message.payload, bytes.fromhex(message.id.decode()))
        peer.send(acknowledge("k", message.id))


def lock_kokaq(peer: Kokaq, ledger: Ledger) -> None:
    """Lock and delete; an answered settlement is a promise."""
    while True:
        answer = peer.ask(ACQUIRE, "default/p")
        if answer.outcome == SUCCESS_OK:
            ledger.shown(answer.payload or b"", answer.fields[UUID])
            assert peer.ask(DELETE, None, b"", {UUID: answer.fields[UUID]}).outcome == SUCCESS_OK
            ledger.settled.add(position_of(answer.fields[UUID]))


def pop_kokaq(peer: Kokaq, ledger: Ledger) -> None:
    while True:
        answer = peer.ask(POP, "default/k")
        if answer.outcome == SUCCESS_OK:
            ledger.shown(answer.payload or b"", answer.fields[UUID])
            ledger.settled.add(position_of(answer.fields[UUID]))
        time.sleep(0.001)


def send_sspq(peer: Kokaq, ledger: Ledger) -> None:
    while True:
        peer.send(*[send(ledger.number(), 255) for _ in range(3)])
        time.sleep(0.002)


def receive_sspq(peer: Kokaq, ledger: Ledger) -> None:
    while True:
        header = peer.send(sspq(RECEIVE)).read(8)
        ledger.delivered.add(peer.read(int.from_bytes(header[4:], "big")))
        peer.send(sspq(CONFIRM))


CLIENTS: list[tuple[str, Callable[[Kokaq, Ledger], None]]] = [
    ("kokaq", push),
    ("kokaq", push),
    ("phpmq", publish_phpmq),
    ("phpmq", consume_phpmq),
    ("kokaq", lock_kokaq),
    ("kokaq", pop_kokaq),
    ("sspq", send_sspq),
    ("sspq", receive_sspq),
]


def live_and_die(broker: BrokerProcess, ledger: Ledger, seconds: float) -> None:
    """Let all clients work on a broker for a while, then kill it."""
    faults: list[BaseException] = []

    def work(peer: Kokaq, client: Callable[[Kokaq, Ledger], None]) -> None:
        try:
            client(peer, ledger)
        except (EOFError, OSError):
            pass  # the broker was killed, as planned
        except BaseException as fault:
            faults.append(fault)

    peers = [(broker.dial(protocol, kind=Kokaq), client) for protocol, client in CLIENTS]
    threads = [threading.Thread(target=work, args=pair) for pair in peers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    assert broker.process is not None
    assert broker.process.poll() is None, broker.log.read_text()
    broker.kill()
    for thread in threads:
        thread.join()
    assert not faults, faults


def take_all(peer: Kokaq, queue: str, ledger: Ledger) -> None:
    """Pop everything, a hundred at a time."""
    while True:
        peer.send(kokaq(POP, queue) * 100)
        answers = [answer for answer in (read_answer(peer) for _ in range(100)) if answer.outcome == SUCCESS_OK]
        for answer in answers:
            ledger.shown(answer.payload or b"", answer.fields[UUID])
        if not answers:
            return


def check_journal(data: Path, ledger: Ledger) -> None:
    """Check a copy of the journal: conservation, and every promise that it can show."""
    copy = data.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    log = FileLog(RealDisk(copy))
    try:
        table = recover(log, table_of(Checkpoints(RealDisk(copy), log.identity).newest_good()))
        restore(table, log.end).check()
        for block in log.read(log.start):
            kinds = block.kinds[~np.isin(block.kinds, list(MESSAGE_KINDS))]
            if block.has("message"):
                ledger.ended.update(block.column("message")[np.isin(kinds, list(FINAL_KINDS))].tolist())
                ledger.popped.update(block.column("message")[kinds == Kind.POPPED].tolist())
    finally:
        log.close()
    alive = set(table.columns["position"].tolist())
    assert set(ledger.confirmed.values()) <= alive | ledger.ended, "a confirmed message is gone"
    assert ledger.settled <= ledger.ended, "a settlement that was answered is not in the journal"
    assert not alive & ledger.ended, "a message is alive after its end"


def test_promises_hold_under_kill(tmp_path: Path) -> None:
    seed = random.Random(4)
    ledger = Ledger()
    with BrokerProcess(tmp_path, CONFIG) as broker:
        maker: Peer = broker.dial("kokaq", kind=Kokaq).make("default/k").make("default/p")
        maker.close()
        for number in range(ROUNDS):
            if number:
                broker.start()
            live_and_die(broker, ledger, 0.3 + seed.random())
            check_journal(broker.data, ledger)
        broker.start()
        last = broker.dial("kokaq", kind=Kokaq)
        for queue in QUEUES:
            take_all(last, queue, ledger)
        assert broker.stop() == 0
    assert len(ledger.confirmed) > 100 * ROUNDS
    assert len(ledger.settled) > 10 * ROUNDS
    # The answer to the pop in flight may be lost with the broker.
    missing = [position for payload, position in ledger.confirmed.items() if payload not in ledger.delivered]
    assert ledger.popped.issuperset(missing), "a confirmed message was never delivered"
    assert len(missing) <= ROUNDS, "more were lost with their answers than were requested"
