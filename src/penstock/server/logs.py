"""Structured logs: readable lines on a terminal, JSON otherwise; never a flood, never a byte that a terminal obeys.

A log call has a short event name and facts::

    log.warning("protocol error", peer="127.0.0.1:5000", protocol="SSPQ", reason="…")

What libraries log with :mod:`logging` goes the same way: see :class:`LibraryLog`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from typing_extensions import override

LEVELS = ("debug", "info", "warning", "error")
#: Lines of one event that are written in each period; the rest are counted, and reported in one line.
BURST = 20
PERIOD = 10.0


class _Period:
    """When the first line of an event was written, and how many came since."""

    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


class Logger:
    """Writes log lines to a stream."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        level: str = "info",
        as_json: bool | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream or sys.stderr
        self._level = LEVELS.index(level)
        self._json = not self._stream.isatty() if as_json is None else as_json
        self._clock = clock
        self._periods: dict[tuple[str, str], _Period] = {}

    def debug(self, event: str, **facts: Any) -> None:
        """A detail for debugging."""
        self._log("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Normal operation."""
        self._log("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """A peer's fault, or a condition that may become ours."""
        self._log("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """A fault of the broker or its system."""
        self._log("error", event, facts)

    def _log(self, level: str, event: str, facts: dict[str, Any]) -> None:
        if LEVELS.index(level) < self._level:
            return
        now = self._clock()
        self._report(now)
        period = self._periods.setdefault((level, event), _Period(now))
        period.lines += 1
        if period.lines <= BURST:
            self._write(now, level, event, facts)

    def report_suppressed(self, *, everything: bool = False) -> None:
        """Report suppressed lines of periods that are over. Call it regularly, and at the end with ``everything``."""
        self._report(self._clock(), everything=everything)

    def _report(self, now: float, *, everything: bool = False) -> None:
        for (level, event), period in list(self._periods.items()):
            if everything or not 0 <= now - period.began < PERIOD:
                del self._periods[(level, event)]
                if period.lines > BURST:
                    facts = {"suppressed": period.lines - BURST, "seconds": round(now - period.began, 1)}
                    self._write(now, level, event, facts)

    def _write(self, now: float, level: str, event: str, facts: dict[str, Any]) -> None:
        if self._json:
            line = json.dumps({"at": round(now, 6), "level": level, "event": event, **facts}, default=printable)
            line = line.replace("\x7f", "\\u007f")  # the one control character that JSON does not escape
        else:
            at = time.strftime("%H:%M:%S", time.localtime(now))
            shown = "  ".join(f"{name}={_quoted(printable(value))}" for name, value in facts.items())
            line = f"{at} {level:7} {event}{'  ' if shown else ''}{shown}"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # a broken log is no reason to stop


_NAMES = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class LibraryLog(logging.Handler):
    """Writes log records of libraries like our own lines: same format, flood limit and escaping."""

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log

    @override
    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for number, name in _NAMES if record.levelno >= number), "debug")
        error = record.exc_info[1] if record.exc_info else None
        facts = {"error": repr(error)} if error is not None else {}
        getattr(self._log, level)("a library says", library=record.name, text=record.getMessage(), **facts)


def printable(value: Any) -> str:
    """A value for a terminal, with control characters escaped."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(each if each.isprintable() and each != "\\" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def _quoted(text: str) -> str:
    """The text, in quotes if it is ambiguous without."""
    return text if text and not any(each in text for each in ' "=') else '"' + text.replace('"', '\\"') + '"'
