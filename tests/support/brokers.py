"""Real broker processes for tests, and plain sockets to talk to them.

A :class:`BrokerProcess` has a folder of its own; tests wait for its state. A :class:`Peer` is a socket that reads an
exact number of bytes, on TCP, a Unix-domain socket or TLS. Both time out, so a test fails instead of hanging.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

#: Seconds to wait for an expected event before a test fails.
PATIENCE = 20.0
#: Seconds to wait for a broker's start on a busy machine. A broker that ends is noticed at once.
START_PATIENCE = 120.0
TESTS = Path(__file__).parents[1]
#: Any port that is free.
FREE = "127.0.0.1:0"


def wait_for(what: Callable[[], Any], why: str = "it did not happen", seconds: float = PATIENCE) -> Any:
    """Poll until the result is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.005)
    return result


PeerT = TypeVar("PeerT", bound="Peer")


class Peer:
    """A client's end of a connection: raw bytes."""

    def __init__(self, address: str, *, tls: bool = False, nodelay: bool = True) -> None:
        self.socket = dial(address, tls=tls, nodelay=nodelay)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(self, *parts: bytes) -> Self:
        """Send bytes in one write."""
        self.socket.sendall(b"".join(parts))
        return self

    def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        while len(self._read) < size:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError(f"the connection ended after {self._read!r}")
            self._read += more
        data, self._read = self._read[:size], self._read[size:]
        return data

    def expect(self, *parts: bytes) -> Self:
        """Assert that these bytes come next."""
        wanted = b"".join(parts)
        assert self.read(len(wanted)) == wanted
        return self

    def expect_end(self) -> None:
        """Assert that the other side closes without sending more."""
        try:
            rest = self._read + self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            rest = b""
        assert rest == b""

    def finish(self) -> Self:
        """Close the sending side; reading still works."""
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def reset(self) -> None:
        """Reset the connection: the other side gets an error, not an end of stream."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def dial(address: str, *, tls: bool = False, nodelay: bool = True) -> socket.socket:
    """Connect to an address from a ready file; over TCP, by default, without Nagle's algorithm."""
    if address.startswith("unix:"):
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(PATIENCE)
        try:
            channel.connect(address[5:])
        except OSError:
            channel.close()
            raise
    else:
        host, _, port = address.rpartition(":")
        channel = socket.create_connection((host.strip("[]"), int(port)), PATIENCE)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    if not tls:
        return channel
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(channel)


class BrokerProcess:
    """A broker on a data folder. ``with BrokerProcess(folder) as broker`` starts it and leaves nothing behind."""

    def __init__(
        self, folder: Path, tables: str = "", *, largest_file: int = 0, capacity: Path | None = None, **options: Any
    ) -> None:
        """``tables`` is a configuration in TOML, ``options`` are values for it.

        Without ``tables`` it listens for all protocols, on free ports that it keeps across restarts.
        ``largest_file`` is a limit in bytes that the kernel enforces for each file. ``capacity`` names a file with
        the size of its disk: see ``support.smalldisk``.
        """
        self.folder = folder
        self.ready = folder / "ready.json"
        self.data = folder / "data"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._arguments = [str(largest_file), str(capacity or "")]
        self._config = folder / "penstock.toml"
        self._tables = tables
        self._options = {"data": str(self.data), "ready_file": str(self.ready), **options}
        if not tables:
            kokaq = {"address": FREE, "create_queues": True}
            self._options = {"phpmq": [FREE], "sspq": [FREE], "kokaq": [kokaq], **self._options}
        if "flight" not in self._options and "flight" not in tables:  # it takes a second to start, so only on request
            self._options["flight"] = "off"
        if "http" not in self._options and "http" not in tables:
            self._options["http"] = "off"
        self._listeners: list[dict[str, str]] = []
        self._peers: list[Peer] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for peer in self._peers:
            peer.close()
        self.kill()

    def configure(self, **options: Any) -> None:
        """Change its configuration for the next start."""
        self._options |= options

    def start(self) -> None:
        """Start it, and wait until all listeners accept connections."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start it."""
        self.ready.unlink(missing_ok=True)
        self._config.write_text(_toml(self._options) + self._tables)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.run_broker", str(self._config), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])},
            )

    def wait_until_ready(self) -> None:
        """Wait until all listeners accept connections."""
        process = self.process
        assert process is not None
        wait_for(
            lambda: self.ready.exists() or process.poll() is not None,
            "the broker was not ready in time",
            START_PATIENCE,
        )
        assert self.ready.exists(), f"the broker ended at once:\n{self.log.read_text()}"
        self._listeners = json.loads(self.ready.read_text())["listeners"]
        self._keep_ports()

    def _keep_ports(self) -> None:
        """Listen on the same ports at the next start, for listeners that the options contain."""
        for protocol in self._options.keys() & self.addresses.keys():
            given = self._options[protocol]
            if isinstance(given, list):
                self._options[protocol] = [_at(each, self.address(protocol, n)) for n, each in enumerate(given)]
            else:
                self._options[protocol] = _at(given, self.address(protocol))

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each protocol's last listener, including "flight"."""
        return {each["protocol"]: each["address"] for each in self._listeners}

    def address(self, protocol: str, number: int = 0) -> str:
        """The address of the nth listener of a protocol."""
        return [each["address"] for each in self._listeners if each["protocol"] == protocol][number]

    def url(self, protocol: str, path: str = "") -> str:
        """The address of a protocol's listener as a URL."""
        return f"{protocol}://{self.addresses[protocol]}{path}"

    @property
    def pid(self) -> int:
        """The PID of the running process."""
        assert self.process is not None
        return self.process.pid

    @property
    def private_socket(self) -> Path:
        """The path of the private socket."""
        return Path((self.data / "broker-socket").read_text()) / "socket"

    @overload
    def dial(self, protocol: str, number: int = 0) -> Peer: ...
    @overload
    def dial(self, protocol: str, number: int = 0, *, kind: type[PeerT]) -> PeerT: ...
    def dial(self, protocol: str, number: int = 0, *, kind: type[Peer] | type[PeerT] = Peer) -> Peer | PeerT:
        """A connection to the nth listener of a protocol, closed at the latest with the broker."""
        peer = kind(self.address(protocol, number))
        self._peers.append(peer)
        return peer

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end. Returns the exit code."""
        assert self.process is not None
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        """Ask it to end, and wait. Returns the exit code."""
        self.signal()
        return self.ended()

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


def companion(broker: BrokerProcess, module: str) -> int:
    """The PID of the companion process that runs a module such as "penstock.admin"."""
    for pid in Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split():
        if module in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            return int(pid)
    raise LookupError(module)


def _at(listener: Any, address: str) -> Any:
    """The options of a listener, with its real port if it asked for any free port."""
    if isinstance(listener, dict):
        return {**listener, "address": _at(listener["address"], address)}
    return address.rpartition("/")[2] if listener == FREE else listener


def _toml(options: dict[str, Any]) -> str:
    """Options as lines of TOML, whose strings, numbers and lists are those of JSON."""
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in options.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]" if isinstance(value, list) else json.dumps(value)


def make_certificate(folder: Path) -> tuple[Path, Path] | None:
    """A certificate for localhost and its key; None where openssl is not installed."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        return None
    return certificate, key
