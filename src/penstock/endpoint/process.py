"""The life of a process beside the broker: what all of them do when they start, and how they tell of it."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import time
import traceback
from contextlib import suppress
from threading import Lock
from typing import BinaryIO, TypeVar

import msgspec

from penstock.endpoint.lines import Alive, Line, Said
from penstock.endpoint.settings import EndpointSettings
from penstock.endpoint.sockets import wait_for_path

SettingsT = TypeVar("SettingsT", bound=EndpointSettings)

#: Less urgent than the broker and its clients, which get three times as much of a processor; but not as little as can
#: be: on a host that others keep busy, such a process gets next to nothing, and readers wait for minutes.
NICENESS = 5
#: Seconds that an address in use may take to become free.
FREE_SECONDS = 3.0


class Reporter:
    """Says things to the broker. Threads may share one."""

    def __init__(self, out: BinaryIO, name: str) -> None:
        """``name`` is what the process is called in the log."""
        self._out = out
        self._name = name
        self._lock = Lock()

    def say(self, line: Line) -> None:
        """One line."""
        with self._lock, suppress(OSError, ValueError):  # nobody listens: the broker is gone, and so are we, soon
            self._out.write(msgspec.json.encode(line) + b"\n")
            self._out.flush()

    def beat(self) -> None:
        """Say that the process is alive. Left out while the broker does not read: it must not hold us up."""
        with suppress(OSError, ValueError):
            if select.select([], [self._out], [], 0)[1]:
                self.say(Alive())

    def fault(self, error: BaseException) -> None:
        """Something that must not happen has happened."""
        place = "".join(traceback.format_exception(error)[-3:]).strip()
        self.say(Said(level="error", event=f"a fault of {self._name}", facts={"error": place[-2000:]}))


def begin() -> None:
    """Ctrl-C goes to the broker as well, which then tells us; its clients come first; segments are kept open."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with suppress(OSError):  # where that is forbidden, the broker's own priority must do
        os.nice(NICENESS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def limit_memory(size: int) -> None:
    """Let this process allocate so many bytes more: what goes beyond fails with MemoryError, and harms nobody else."""
    with suppress(OSError, ValueError):  # a lower limit that was set from outside stays
        with open("/proc/self/statm", "rb") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data + size, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def told_settings(told: BinaryIO, kind: type[SettingsT]) -> SettingsT | None:
    """The first line of standard input. None: the broker has gone before it said anything."""
    line = told.readline()
    return msgspec.json.decode(line, type=kind) if line else None


def wait_for_address(address: str) -> None:
    """Raises OSError with the reason if it can't be listened on.

    The endpoint of a broker that was killed a moment ago may still be about to end, so it is tried for a while.
    """
    if address.startswith("unix:"):
        wait_for_path(address.removeprefix("unix:"), FREE_SECONDS)
        return
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + FREE_SECONDS
    while True:
        try:
            for family, kind, _, _, where in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                with socket.socket(family, kind) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(where)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
