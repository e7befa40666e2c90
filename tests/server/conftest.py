"""One broker for all conformance suites, with every kind of listener on every transport."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from support.brokers import BrokerProcess, Peer, make_certificate
from support.raw import Kokaq

TRANSPORTS = ("tcp", "unix", "tls")
#: SSPQ has one queue per listener, and each test needs a queue of its own.
SSPQ_LISTENERS = 90

PeerT = TypeVar("PeerT", bound=Peer)


def _tables(folder: Path, certificate: tuple[Path, Path] | None) -> str:
    """Listeners in the order of TRANSPORTS, followed, on TCP, by those of ``Rig.special``."""
    tables: list[str] = []

    def add(protocol: str, transport: str, **options: object) -> None:
        number = len(tables)
        address = f"unix:{folder}/{number}.sock" if transport == "unix" else "127.0.0.1:0"
        lines = [f"[[{protocol}]]", f'address = "{address}"']
        if transport == "tls" and certificate:
            lines += [f'tls_certificate = "{certificate[0]}"', f'tls_key = "{certificate[1]}"']
        lines += [
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for key, value in options.items()
        ]
        tables.append("\n".join(lines))

    for transport in TRANSPORTS:
        add("phpmq", transport)
        add("kokaq", transport)
        for number in range(SSPQ_LISTENERS):
            add("sspq", transport, queue=f"default/{transport}-{number}")
    for dialect in ("36", "32", "ttl"):
        add("phpmq", "tcp", dialect=dialect)
    add("phpmq", "tcp", namespace="elsewhere")
    add("kokaq", "tcp", create_queues=True)
    add("sspq", "tcp", queue="default/forced", force_retries=1)
    add("sspq", "tcp", queue="default/no-dead", dead_letters=False)
    return "\n".join(tables)


SPECIAL = {
    "phpmq 36": ("phpmq", 3),
    "phpmq 32": ("phpmq", 4),
    "phpmq ttl": ("phpmq", 5),
    "phpmq elsewhere": ("phpmq", 6),
    "kokaq create": ("kokaq", 3),
    "sspq forced": ("sspq", 3 * SSPQ_LISTENERS),
    "sspq no dead letters": ("sspq", 3 * SSPQ_LISTENERS + 1),
}


class Rig:
    """One test's access to the broker: over one transport, with queues that no other test uses."""

    _numbers = count()
    _listeners: ClassVar = {transport: count() for transport in TRANSPORTS}

    def __init__(self, broker: BrokerProcess, transport: str) -> None:
        self.broker = broker
        self.transport = transport
        self.name = f"queue-{next(self._numbers)}"
        self.queue = f"default/{self.name}"
        self._sspq = -1
        self._peers: list[Peer] = []

    def phpmq(self) -> Peer:
        """A connection to the PHPMQ listener."""
        return self._dial(Peer, self.address("phpmq"))

    def kokaq(self) -> Kokaq:
        """A connection to the Kokaq listener."""
        return self._dial(Kokaq, self.address("kokaq"))

    def sspq(self) -> Peer:
        """A connection to this test's own SSPQ listener."""
        return self._dial(Peer, self.address("sspq"))

    def address(self, protocol: str) -> str:
        """The address of a protocol's listener on this transport; for SSPQ, of this test's own listener."""
        number = TRANSPORTS.index(self.transport)
        if protocol == "sspq":
            self._take_listener()
            number = number * SSPQ_LISTENERS + self._sspq
        return self.broker.address(protocol, number)

    @property
    def sspq_name(self) -> str:
        """The queue of that listener, in the namespace default."""
        self._take_listener()
        return f"{self.transport}-{self._sspq}"

    def _take_listener(self) -> None:
        if self._sspq < 0:
            self._sspq = next(self._listeners[self.transport])
            assert self._sspq < SSPQ_LISTENERS, "more tests than listeners: raise SSPQ_LISTENERS"

    def special(self, which: str) -> Peer:
        """A connection to one of the listeners with special options, over TCP."""
        protocol, number = SPECIAL[which]
        peer = (Kokaq if protocol == "kokaq" else Peer)(self.broker.address(protocol, number))
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            peer.close()

    def _dial(self, kind: type[PeerT], address: str) -> PeerT:
        peer = kind(address, tls=self.transport == "tls")
        self._peers.append(peer)
        return peer


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path] | None:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path] | None) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, _tables(folder, certificate)) as broker:
        yield broker
        assert broker.stop() == 0
        assert broker.events("error in a session") == []


@pytest.fixture(params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, broker: BrokerProcess, certificate: tuple[Path, Path] | None) -> Iterator[Rig]:
    """A rig for each transport."""
    if request.param == "tls" and certificate is None:
        pytest.skip("openssl is not installed: no certificate to test TLS with")
    rig = Rig(broker, request.param)
    yield rig
    rig.close()


@pytest.fixture
def tcp_rig(broker: BrokerProcess) -> Iterator[Rig]:
    """A rig over TCP, for rules that do not depend on the transport."""
    rig = Rig(broker, "tcp")
    yield rig
    rig.close()
