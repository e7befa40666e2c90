"""The base of all servers."""

from __future__ import annotations

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benches.peers.processes import Process


@dataclass
class Running:
    """A server that accepts: its process, and the port of each protocol that it speaks to the generator."""

    process: Process
    ports: dict[str, int]


@dataclass(frozen=True)
class Server(ABC):
    """A broker with one configuration."""

    #: Short and unique.
    key: str
    title: str
    #: The durability of a message when it is confirmed.
    durability: str

    @abstractmethod
    def missing(self) -> str | None:
        """The command that installs it; None if it is installed."""

    @abstractmethod
    def version(self) -> str:
        """The version that it reports."""

    @abstractmethod
    def start(self, folder: Path) -> Running:
        """Start it on the data in this folder."""


@contextmanager
def running(server: Server, folder: Path) -> Iterator[Running]:
    """A server in this folder, which is created if missing; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    found = server.start(folder)
    try:
        yield found
    finally:
        found.process.stop()


def not_on_path(program: str, install: str) -> str | None:
    """The command that installs it, if there is no such program."""
    return None if shutil.which(program) else install


def said(*command: str) -> str:
    """The output of a command on both streams."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr).strip()


def ready_or_stopped(process: Process, port: int) -> None:
    """Wait until it accepts connections, or stop it and raise ServerError."""
    try:
        process.wait_for_port(port)
    except BaseException:
        process.stop()
        raise
