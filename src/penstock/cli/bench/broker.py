"""A broker for a measurement: a process of its own, with a folder of its own, gone afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.endpoint.parent import with_parent
from penstock.protocols import protocols

#: How long a broker may take to start.
PATIENCE = 20.0


@contextmanager
def broker(durability: str) -> Iterator[dict[str, str]]:
    """The URLs of a new broker by protocol."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        ready = Path(folder, "ready.json")
        listeners = [f"--{protocol}=127.0.0.1:0" for protocol in protocols()]
        command = [sys.executable, "-m", "penstock", "serve", *listeners, f"--durability={durability}"]
        command += [f"--data={folder}/data", f"--ready-file={ready}", "--log-level=error", "--flight=off", "--http=off"]
        with subprocess.Popen(command, preexec_fn=with_parent()) as process:  # noqa: PLW1509 - there are no threads
            try:
                yield _urls(ready, process)
            finally:
                process.terminate()


def _urls(ready: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    until = time.monotonic() + PATIENCE
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise OSError("the broker did not start")
        time.sleep(0.02)
    listeners = json.loads(ready.read_text())["listeners"]
    return {each["protocol"]: f"{each['protocol']}://{each['address']}" for each in listeners}
