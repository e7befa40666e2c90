"""A broker with limits, and a well-behaved client, for tests of bad peers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.brokers import BrokerProcess, wait_for
from support.raw import Kokaq

PLAIN = "".join(f'[[{protocol}]]\naddress = "127.0.0.1:0"\n' for protocol in ("phpmq", "sspq", "kokaq"))
QUEUE = "default/good"
#: Seconds within which each request of the client must be answered, even on a busy machine.
PROMPT = 5.0


class Broker(BrokerProcess):
    """A broker that closes the test's connections before it stops."""

    def kokaq(self, number: int = 0) -> Kokaq:
        """A Kokaq client."""
        return self.dial("kokaq", number, kind=Kokaq)

    def hang_up(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            peer.close()


@contextmanager
def broker_with(folder: Path, limits: str = "", tables: str = "", listeners: str = PLAIN) -> Iterator[Broker]:
    """A broker on three TCP ports. At the end it must stop cleanly, without an internal error."""
    settings = f'[queues."{QUEUE}"]\n[journal]\nmin_free_bytes = 0\n[limits]\n{limits}\n{tables}\n'
    with Broker(folder, settings + listeners) as broker:
        try:
            yield broker
        finally:
            broker.hang_up()
        assert broker.stop() == 0, broker.log.read_text()
        assert not [line for line in broker.log.read_text().splitlines() if "Traceback" in line or "error in" in line]


class Good:
    """A client that pushes and pops, one at a time, as long as the test runs."""

    def __init__(self, broker: Broker) -> None:
        self._peer = broker.kokaq()
        self._peer.socket.settimeout(PROMPT)
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0

    def __enter__(self) -> Good:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        before = self.rounds
        wait_for(lambda: self._failure or self.rounds > before + 3, "the good client is stuck")
        self._stopping.set()
        self._thread.join()
        self._peer.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                payload = b"%d" % self.rounds
                self._peer.push(QUEUE, payload)
                assert self._peer.pop_all(QUEUE) == [payload]
                self.rounds += 1
                time.sleep(0.01)
        except Exception as error:
            self._failure = error


def memory_of(broker: BrokerProcess) -> int:
    """The broker's resident memory, in bytes."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def descriptors_of(broker: BrokerProcess) -> int:
    """The number of its open file descriptors."""
    assert broker.process is not None
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def cpu_of(broker: BrokerProcess) -> float:
    """The CPU time that it has used, in seconds."""
    assert broker.process is not None
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
