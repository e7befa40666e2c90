"""What can go wrong with a log. Each text names what is wrong and what to do next."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Whether the operating system says that there is no room."""
    return error.errno in _FULL


class LogError(Exception):
    """Whatever goes wrong with a log."""


class Fenced(LogError):
    """Someone else writes this log: the expected position or the epoch is not the log's. Nothing was written."""


class LogFailed(LogError):
    """The disk failed. Nothing more is accepted: what was appended last may or may not be there after a restart."""


class LogFull(LogError):
    """The disk has no room. Nothing was changed, and the same call may be made again when there is."""


class LogAway(LogFull):
    """The storage does not answer, or takes no changes for now. Nothing that is there is damaged or lost by it.

    The same call may be made again: if it was done after all, that is found out then.
    """


class LogDenied(LogAway):
    """The storage answers, and turns us away until somebody changes a right, a password or a setting."""


class LogClosed(LogError):
    """The log was closed before."""


class Gone(LogError, LookupError):
    """No message is kept at this position: trimmed away, never there, or the event there is not a message."""


class JournalRefused(LogError):
    """The log can not be opened as it is. The text says what to do."""


class JournalOwned(JournalRefused):
    """Somebody else owns the journal now: ``owner``, for people, and ``seconds`` until its lease runs out if it does.

    Who waits that long may try again.
    """

    def __init__(self, where: str, owner: str, seconds: float) -> None:
        super().__init__(f"the journal in {where} is in use by another broker: {owner}")
        self.owner = owner
        self.seconds = max(seconds, 0.0)


class DecisionNeeded(LogFailed):
    """The storage is not what it was, and only an operator knows what is right. It does not pass by itself."""


class JournalMissing(DecisionNeeded):
    """The journal that this broker knows is not there: its tables are gone, or another journal has its place."""


class CommitsLost(DecisionNeeded):
    """The storage has lost events that it had confirmed as durable. ``lost`` is their range of positions, end excluded.

    No broker goes on before an operator has accepted the loss.
    """

    def __init__(self, lost: tuple[int, int], text: str) -> None:
        super().__init__(text)
        self.lost = lost


class JournalDamaged(JournalRefused):
    """Events that were confirmed are missing or unreadable. ``lost`` is the range of positions, end excluded."""

    def __init__(
        self, where: str, segment: str, offset: int, lost: tuple[int, int], reason: str, *, remedy: str = ""
    ) -> None:
        """``remedy`` is what to do where it is not a repair."""
        super().__init__(
            f"the journal in {where} is damaged: {segment}, byte {offset}: {reason}. Lost: positions {lost[0]} to "
            f"{lost[1] - 1}. {remedy or f'To keep the rest: penstock journal repair {where}'}"
        )
        #: Where it lies, for people.
        self.place = f"{segment}, byte {offset}"
        self.segment = segment
        self.offset = offset
        self.lost = lost
        self.reason = reason


class DataLoss(LogError):
    """Events that were shown, or were still to be read, are gone. ``lost`` is their range of positions, end excluded.

    A reader that accepts the loss goes on at ``lost[1]``.
    """

    def __init__(self, lost: tuple[int, int], text: str, *, events: tuple[int, int] | None = None) -> None:
        """``events`` are those of the positions that named any, as far as the reader has seen them; else all did."""
        low, high = events or lost
        super().__init__(f"positions {low} to {high - 1} are lost: {text}")
        self.lost = lost


class Trimmed(DataLoss):
    """Retention has removed the events, or moved the beginning of the history past them."""


class Replaced(DataLoss):
    """Another journal is in the place of the one that was read before: all positions are void."""


#: Of a checkpoint that the log does not reach back to.
TOO_OLD = "it is older than the first segment, and of no use"

#: What reading a message raises where its payload can't be had.
UNREADABLE = (JournalDamaged, Gone, LogFailed)
