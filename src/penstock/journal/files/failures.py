"""Translates errors of the disk into errors of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.journal.errors import Gone, LogFailed, LogFull, is_full


class DiskFailures:
    """Translates errors of the disk, and remembers the one that ended the log."""

    def __init__(self, where: str) -> None:
        """``where`` is the folder, for display."""
        self._where = where
        #: The error that ended the log.
        self.fatal: LogFailed | None = None

    @contextmanager
    def converted(self, *, fatal: bool = False, starting: bool = False) -> Iterator[None]:
        """Raise LogFailed for an OSError. A ``fatal`` one ends the log, because the state of the disk is then unknown.

        With ``starting``, a full disk raises LogFull: the start can be retried.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not fatal:
                raise Gone(f"a segment was trimmed while it was being read: {error.filename}") from None
            if is_full(error) and starting:
                raise LogFull(f"the disk under {self._where} is full: {error}. Free some space") from error
            raise (self.end_log(error) if fatal else self._failed(error)) from error

    def end_log(self, error: OSError) -> LogFailed:
        """Accept nothing more. Returns the error to raise."""
        self.fatal = self._failed(error)
        return self.fatal

    def _failed(self, error: OSError) -> LogFailed:
        return LogFailed(
            f"the disk failed under {self._where}: {error}. Nothing more is accepted: repair it and restart"
        )
