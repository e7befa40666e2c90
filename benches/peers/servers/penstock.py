"""Penstock, from this checkout."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server

#: What the generator calls a way of consuming, and the listener that it talks to.
LISTENERS = {"phpmq": "phpmq", "kokaq": "kokaq", "kokaq-pop": "kokaq", "sspq": "sspq"}
#: A checkout keeps what Python has compiled after its first start, as an install does from the beginning.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True)
class Penstock(Server):
    """A broker with defaults, without the processes beside it: as it is installed without extras."""

    mode: str = "commit"

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return version("penstock")

    def start(self, folder: Path) -> Running:
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        listeners = [f"--{each}=127.0.0.1:0" for each in sorted(set(LISTENERS.values()))]
        command = [sys.executable, "-m", "penstock", "serve", *listeners, f"--durability={self.mode}", "--flight=off"]
        command += ["--http=off", f"--data={folder}/data", f"--ready-file={ready}", "--log-level=warning"]
        process = Process(self.title, command, folder, COMPILED)
        try:
            process.wait_for(ready.exists)
        except BaseException:
            process.stop()
            raise
        ports = {each["protocol"]: int(each["address"].rpartition(":")[2]) for each in _listeners(ready)}
        return Running(process, {way: ports[listener] for way, listener in LISTENERS.items()})


def _listeners(ready: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(ready.read_text())["listeners"]
    return found


COMMIT = Penstock("penstock", "Penstock", "on disk (fdatasync) before it is confirmed or delivered")
SYSTEM = Penstock(
    key="penstock-os",
    title="Penstock, durability=os",
    mode="os",
    durability="written to the system; it reaches the disk when the system likes",
)
