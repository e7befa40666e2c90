"""A journal by its URL, and who stands by to be its next owner."""

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
    """Follows a journal that another process owns, to be ready as its next owner. One thread at a time uses it.

    The state is kept by who stands by: from ``checkpoint``, and then from what ``catch_up`` gives, again and again.
    """

    @property
    def position(self) -> int:
        """Every event below it was given by ``catch_up``, or is in the checkpoint that was read last."""

    @property
    def owner(self) -> str:
        """Who owned the journal when it was last looked at, for people; empty if nobody does."""

    @property
    def seconds(self) -> float:
        """How long the owner's lease ran when that was last looked at: ``own`` is of no use before."""

    def checkpoint(self) -> Checkpoint | None:
        """The newest that can be read. ``catch_up`` goes on at its position. Raises LogError."""

    def catch_up(self) -> Iterator[Block]:
        """The blocks that were committed since, in order, each once. It ends where the log ended when it was called.

        Raises Trimmed where some of them are gone: begin again with the checkpoint. Raises CommitsLost if the journal
        ends before ``position``, and LogError when the storage can't be asked.
        """

    def own(self) -> OwnedJournal:
        """Be the owner. Raises JournalOwned, and CommitsLost if the journal ends before ``position``."""

    def close(self) -> None:
        """Let go of everything; what ``own`` gave stays open."""


class Journal(Protocol):
    """A journal by its URL. Nothing is touched before a role is taken; JournalRefused says why one is not to be had."""

    #: For people.
    where: str
    #: Whether brokers on several machines may own it in turn: a broker that finds it owned stands by.
    shared: bool

    def own(self) -> OwnedJournal:
        """Be the broker that writes it; it is made if it is new. Raises LogFailed, or LogFull, too.

        Raises JournalOwned where another process is the owner of a ``shared`` journal.
        """

    def stand_by(self) -> Standby:
        """Wait to be its owner. Raises JournalRefused for a journal that is not ``shared``."""

    def follow(self, *, identity: int | None = None) -> Follower:
        """Read it. Raises Replaced if it is not the one with this identity."""

    def abandon(self) -> None:
        """Ask the storage nothing more, in whatever role: what waits for it raises LogAway at once. Any thread may.

        What is under way may have been done.
        """

    def tools(self) -> JournalTools:
        """Check, show and repair it."""

    def transfer_source(self) -> AbstractContextManager[TransferSource]:
        """Have it copied elsewhere. Raises JournalRefused where somebody owns it."""

    def transfer_target(self) -> AbstractContextManager[TransferTarget]:
        """Have another one copied into it. Raises JournalRefused where there is something, or somebody owns it."""
