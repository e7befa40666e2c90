"""A real broker in a process of its own, on free ports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_START = """
import json, sys
from msgspec import convert
from penstock.server.process.options import BrokerOptions
from penstock.server.process.serve import serve
sys.exit(serve(convert(json.loads(sys.argv[1]), BrokerOptions)))
"""


class LiveBroker:
    """Started on entering, stopped on leaving. ``options`` are those of the configuration file."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._ready = folder / "ready.json"
        free = [{"address": "127.0.0.1:0"}]
        self._options = {
            "data": str(folder / "data"),
            "ready_file": str(self._ready),
            "phpmq": free,
            "sspq": free,
            "kokaq": [{**free[0], "create_queues": True}],
            "flight": None,  # it takes a second to start: for those who ask for it
            **options,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start, on the ports that it had before, if it was started before."""
        for protocol, address in self.addresses.items():
            if protocol == "flight":
                self._options[protocol] = {**self._options[protocol], "address": address.partition("://")[2]}
            else:
                self._options[protocol] = [{**self._options[protocol][0], "address": address}]
        with self.log.open("ab") as log:
            command = [sys.executable, "-c", _START, json.dumps(self._options)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while not self._ready.exists():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        listeners = json.loads(self._ready.read_text())["listeners"]
        self.addresses = {each["protocol"]: each["address"] for each in listeners}

    def stop(self) -> None:
        """Stop it with a signal, and wait for its end."""
        self._end(lambda process: process.terminate())

    def kill(self) -> None:
        """End it the hard way."""
        self._end(lambda process: process.kill())
        self._ready.unlink(missing_ok=True)

    def _end(self, how: Any) -> None:
        process, self._process = self._process, None
        if process is not None:
            how(process)
            process.wait(20)

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None
        return self._process.pid

    def url(self, protocol: str, path: str = "") -> str:
        """The address of a listener as a URL."""
        return f"{protocol}://{self.addresses[protocol]}{path}"
