"""Errors of a journal. Each text says what happened and what to do."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Whether an error means that the disk or quota is full."""
    return error.errno in _FULL


class LogError(Exception):
    """The base of all errors of a journal."""


class Fenced(LogError):
    """Another owner writes this log: the expected position or the epoch does not match. Nothing was written."""


class LogFailed(LogError):
    """The storage failed. Nothing more is accepted: the last append may or may not be there after a restart."""


class LogFull(LogError):
    """The disk is full. Nothing was changed; the same call may be repeated once there is room."""


class LogAway(LogFull):
    """The storage does not answer, or accepts no changes for now. Nothing is damaged or lost.

    The same call may be repeated: it notices if the first one took effect.
    """


class LogDenied(LogAway):
    """The storage refuses access until an administrator changes a right, a password or a setting."""


class LogClosed(LogError):
    """The log is closed."""


class Gone(LogError, LookupError):
    """There is no message at this position: it was trimmed, it never existed, or the event is not a message."""


class JournalRefused(LogError):
    """The journal cannot be opened as it is. The text says what to do."""


class JournalOwned(JournalRefused):
    """Another broker owns the journal: ``owner``, for display. Its lease, unless renewed, ends in ``seconds``."""

    def __init__(self, where: str, owner: str, seconds: float) -> None:
        super().__init__(f"the journal in {where} is in use by another broker: {owner}")
        self.owner = owner
        self.seconds = max(seconds, 0.0)


class DecisionNeeded(LogFailed):
    """The storage has lost or changed data, and an operator must decide how to continue."""


class JournalMissing(DecisionNeeded):
    """The journal that this broker knows is gone: its tables are missing, or belong to another journal."""


class CommitsLost(DecisionNeeded):
    """The storage has lost events that it had confirmed as durable. ``lost`` is their range of positions, end excluded.

    No broker continues before an operator has accepted the loss.
    """

    def __init__(self, lost: tuple[int, int], text: str) -> None:
        super().__init__(text)
        self.lost = lost


class JournalDamaged(JournalRefused):
    """Confirmed events are missing or unreadable. ``lost`` is their range of positions, end excluded."""

    def __init__(
        self, where: str, segment: str, offset: int, lost: tuple[int, int], reason: str, *, remedy: str = ""
    ) -> None:
        """``remedy`` says what to do if it is not ``penstock journal repair``."""
        super().__init__(
            f"the journal in {where} is damaged: {segment}, byte {offset}: {reason}. Lost: positions {lost[0]} to "
            f"{lost[1] - 1}. {remedy or f'To keep the rest: penstock journal repair {where}'}"
        )
        #: For people.
        self.place = f"{segment}, byte {offset}"
        self.segment = segment
        self.offset = offset
        self.lost = lost
        self.reason = reason


class DataLoss(LogError):
    """Events of a range that is read are lost. ``lost`` is their range of positions, end excluded.

    A reader that accepts the loss continues at ``lost[1]``.
    """

    def __init__(self, lost: tuple[int, int], text: str, *, events: tuple[int, int] | None = None) -> None:
        """``events`` is the part of ``lost`` that had events, as far as the reader knows; by default all of it."""
        low, high = events or lost
        super().__init__(f"positions {low} to {high - 1} are lost: {text}")
        self.lost = lost


class Trimmed(DataLoss):
    """Retention has removed the events, or moved the beginning of the history past them."""


class Replaced(DataLoss):
    """Another journal has replaced the one that was read before: its positions mean nothing here."""


#: The problem of a checkpoint that lies before the log.
TOO_OLD = "it is older than the first segment, and of no use"

#: The errors of reading a message that mean that its payload is unavailable.
UNREADABLE = (JournalDamaged, Gone, LogFailed)
