"""The life of a companion process of the broker: its start, and its reports to the broker."""

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

from penstock.companions.process_reports import Alive, LogEvent, ProcessReport
from penstock.companions.settings import CompanionSettings
from penstock.companions.sockets import wait_for_path

SettingsT = TypeVar("SettingsT", bound=CompanionSettings)

#: A niceness that gives the broker and its clients three times as much CPU. A higher one would get almost no CPU on a
#: host busy with other work, and readers would wait for minutes.
NICENESS = 5
#: Seconds to wait for an address that is in use.
FREE_SECONDS = 3.0


class Reporter:
    """Writes lines to the broker. Threads may share one."""

    def __init__(self, out: BinaryIO, name: str) -> None:
        """``name`` is the process's name in the log."""
        self._out = out
        self._name = name
        self._lock = Lock()

    def report(self, report: ProcessReport) -> None:
        """Write one report as a line."""
        with self._lock, suppress(OSError, ValueError):  # the broker is gone, and this process ends soon
            self._out.write(msgspec.json.encode(report) + b"\n")
            self._out.flush()

    def beat(self) -> None:
        """Report that the process is alive. Skipped while the broker does not read, so that it never blocks."""
        with suppress(OSError, ValueError):
            if select.select([], [self._out], [], 0)[1]:
                self.report(Alive())

    def fault(self, error: BaseException) -> None:
        """Report an unexpected error."""
        place = "".join(traceback.format_exception(error)[-3:]).strip()
        self.report(LogEvent(level="error", event=f"internal error in {self._name}", facts={"error": place[-2000:]}))


def begin() -> None:
    """Leave Ctrl-C to the broker, which then ends us; lower our priority; raise the limit of open files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with suppress(OSError):  # not permitted: the broker's own priority must do
        os.nice(NICENESS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def limit_memory(size: int) -> None:
    """Let this process allocate ``size`` more bytes; beyond that, allocations fail with MemoryError."""
    with suppress(OSError, ValueError):  # keep a lower limit that was set from outside
        with open("/proc/self/statm", "rb") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data + size, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def read_settings(stdin: BinaryIO, kind: type[SettingsT]) -> SettingsT | None:
    """Decode the first line of standard input. None: the broker ended before it wrote any."""
    line = stdin.readline()
    return msgspec.json.decode(line, type=kind) if line else None


def wait_for_address(address: str) -> None:
    """Raises OSError with the reason if we can't listen on the address.

    The companion of a broker that was just killed may still be ending, so an address in use is retried for a while.
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
