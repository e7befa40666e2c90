"""A bare echo on uvloop: what a round trip through Python costs before anything is done with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server, ready_or_stopped
from penstock.demo.processes import free_port

PROGRAM = """
import asyncio, sys, uvloop

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.write = transport.write
    def data_received(self, data):
        self.write(data)

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

uvloop.run(main())
"""


@dataclass(frozen=True)
class Echo(Server):
    """Sends back what it gets."""

    def missing(self) -> str | None:
        return None if find_spec("uvloop") else "pip install uvloop"

    def version(self) -> str:
        return f"uvloop {version('uvloop')}"

    def start(self, folder: Path) -> Running:
        port = free_port()
        process = Process(self.title, [sys.executable, "-c", PROGRAM, str(port)], folder)
        ready_or_stopped(process, port)
        return Running(process, {"echo": port})


ECHO = Echo("echo", "bare uvloop echo", "none: bytes come back")
