"""What all servers have in common."""

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
    #: What is true of a message when its publisher is told so.
    durability: str

    @abstractmethod
    def missing(self) -> str | None:
        """How to install it, or None if it is there."""

    @abstractmethod
    def version(self) -> str:
        """As it says itself."""

    @abstractmethod
    def start(self, folder: Path) -> Running:
        """Start it on what this folder has."""


@contextmanager
def running(server: Server, folder: Path) -> Iterator[Running]:
    """A server in this folder, which is made if it is not there; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    found = server.start(folder)
    try:
        yield found
    finally:
        found.process.stop()


def not_on_path(program: str, install: str) -> str | None:
    """The install line, if there is no such program."""
    return None if shutil.which(program) else install


def said(*command: str) -> str:
    """What a command prints, on either stream."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr).strip()


def ready_or_stopped(process: Process, port: int) -> None:
    """Waits until it accepts; one that does not is gone before the error is told."""
    try:
        process.wait_for_port(port)
    except BaseException:
        process.stop()
        raise
