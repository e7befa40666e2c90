"""A command on a pseudo-terminal: tests read its screen and press keys."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from support.commands import environment

PATIENCE = 40.0
ROWS, COLUMNS = 40, 200


class Terminal:
    """Runs a command on a terminal of its own, as its session's leader."""

    def __init__(self, command: Sequence[str], rows: int = ROWS, columns: int = COLUMNS) -> None:
        self._mine, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = ""
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment(TERM="xterm", COLUMNS=str(columns)),
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - one call of the system, which no thread can be in the way of
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)

    def wait_for(self, text: str) -> None:
        """Wait until this text appears, and drop the output up to it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} did not appear: {self.seen[-2000:]!r}"
            self._read()
        self.seen = self.seen.partition(text)[2]

    def press(self, keys: str) -> None:
        """Send these keys."""
        os.write(self._mine, keys.encode())

    def ended(self) -> int:
        """Wait for the end. Returns the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the command is still running: {self.seen[-2000:]!r}"
            self._read()
        return self.process.returncode

    def _read(self) -> None:
        """Read the output so far; a program whose terminal is not read would block."""
        ready, _, _ = select.select([self._mine], [], [], 0.05)
        if ready:
            try:
                self.seen += os.read(self._mine, 65536).decode(errors="replace")
            except OSError:  # the other side is closed: the program has ended, or is about to
                time.sleep(0.01)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
