"""A journal at a URL, and a standby that waits to become its owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from penstock.journal.contract.owner import Checkpoint, OwnedJournal
from penstock.journal.contract.readers import Follower
from penstock.journal.contract.tools import JournalTools
from penstock.journal.format.block import Block

if TYPE_CHECKING:
    from penstock.journal.transfer import TransferSource, TransferTarget


class Standby(Protocol):
    """Follows a journal that another process owns, ready to take over. Not thread-safe.

    The caller keeps the state: it begins with ``checkpoint``, and applies the blocks of each ``catch_up``.
    """

    @property
    def position(self) -> int:
        """``catch_up`` has returned every event below it since the last checkpoint that was read."""

    @property
    def owner(self) -> str:
        """The owner at the last look, for display; empty if there was none."""

    @property
    def seconds(self) -> float:
        """The rest of the owner's lease at the last look. ``own`` can't succeed before it ends."""

    def checkpoint(self) -> Checkpoint | None:
        """The newest readable checkpoint. ``catch_up`` continues at its position. Raises LogError."""

    def catch_up(self) -> Iterator[Block]:
        """The blocks committed since, in order, each once, up to the end of the log at the time of the call.

        Raises Trimmed if some of them are gone: begin again with the checkpoint. Raises CommitsLost if the journal ends
        before ``position``, and LogError if the storage does not answer.
        """

    def own(self) -> OwnedJournal:
        """Become the owner. Raises JournalOwned, and CommitsLost if the journal ends before ``position``."""

    def close(self) -> None:
        """Release all resources. A journal returned by ``own`` stays open."""


class Journal(Protocol):
    """A journal at a URL. Nothing is touched before it is opened in a role; each of these may raise JournalRefused."""

    #: For people.
    where: str
    #: Whether brokers on several machines may own it in turn: a broker that finds it owned stands by.
    shared: bool

    def own(self) -> OwnedJournal:
        """Open it for writing; create it if it is new. Raises LogFailed and LogFull too.

        Raises JournalOwned if another process owns a ``shared`` journal.
        """

    def stand_by(self) -> Standby:
        """Wait for ownership. Raises JournalRefused for a journal that is not ``shared``."""

    def follow(self, *, identity: int | None = None) -> Follower:
        """Open it for reading. Raises Replaced if it has another identity."""

    def abandon(self) -> None:
        """Stop all access to the storage, in every role: calls that wait for it raise LogAway at once.

        Statements in flight may or may not have taken effect. Any thread may call it.
        """

    def tools(self) -> JournalTools:
        """Tools that check, show and repair it."""

    def transfer_source(self) -> AbstractContextManager[TransferSource]:
        """Open it as the source of a copy. Raises JournalRefused if it has an owner."""

    def transfer_target(self) -> AbstractContextManager[TransferTarget]:
        """Open it as the target of a copy. Raises JournalRefused unless it is empty and has no owner."""
