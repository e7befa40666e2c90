"""Redis, with its append-only file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server, not_on_path, ready_or_stopped, said
from penstock.demo.processes import free_port


@dataclass(frozen=True)
class Redis(Server):
    """A Redis with default settings except those for durability, without snapshots beside the append-only file."""

    fsync: str = "always"

    def missing(self) -> str | None:
        return not_on_path("redis-server", "apt-get install -y redis-server")

    def version(self) -> str:
        return said("redis-server", "--version").partition("v=")[2].partition(" ")[0]

    def start(self, folder: Path) -> Running:
        port = free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
        command += ["--protected-mode", "no"]  # else only 127.0.0.1 itself may connect, not the rest of 127.0.0.0/8
        command += ["--appendonly", "yes", "--appendfsync", self.fsync]
        process = Process(self.title, command, folder)
        ready_or_stopped(process, port)
        return Running(process, {"redis-list": port, "redis-stream": port})


ALWAYS = Redis("redis", "Redis", "on disk (fsync) before it is confirmed: appendfsync always")
EVERYSEC = Redis(
    "redis-everysec", "Redis, everysec", "written to the system; fsync once a second: appendfsync everysec", "everysec"
)
