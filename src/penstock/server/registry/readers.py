"""Readers of the journal: their positions, and the history that they pin.

Readers report their positions; only pins and leases depend on them. So the table is saved to the journal's values every
few seconds, and after a crash a reader may appear a few seconds behind. Only the newest query under a name is saved
before that query is answered. Saving waits for the disk, so another thread does it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import NamedTuple

import msgspec

from penstock.companions.readers_and_writers import ReaderRow
from penstock.core.broker import Broker
from penstock.flight.flight_requests import Report, TakeLease
from penstock.journal.contract import ValueStore
from penstock.server.logs import Logger
from penstock.server.registry.names import check_owner

NAME = "readers.json"
#: Seconds between two saves.
SAVE_SECONDS = 5.0
#: Most readers. A new one replaces, of the identity with the most readers, the one that has not reported for longest.
#: Readers with pins or leases are not replaced.
MOST_READERS = 1_000
#: Former queries under a name that are remembered: older ones have long given up.
MOST_FORMER = 20


class Entry(msgspec.Struct, kw_only=True):
    """A reader, as it is saved."""

    reader: str
    view: str
    where: str
    position: int
    lag_rows: int = 0
    lag_seconds: float = 0.0
    lost_from: int = 0
    pin: bool = False
    peer: str = ""
    #: When it last reported.
    at: int
    #: The query that leases under this name, and former ones.
    instance: str = ""
    former: list[str] = []
    #: The identity that owns it; empty without access rules.
    owner: str = ""


class Pin(NamedTuple):
    """A reader needs history from a position on. ``at`` is when it last reported."""

    reader: str
    position: int
    at: int


class TooManyReaders(Exception):
    """There is no room for another reader."""


class ReaderTable:
    """All readers. They are saved to ``values``, if given. ``share`` is the limit of one identity."""

    def __init__(
        self, log: Logger, broker: Broker, values: ValueStore | None = None, share: int = MOST_READERS
    ) -> None:
        #: Held while a request settles, takes or returns leases in several turns of the loop.
        self.leasing = asyncio.Lock()
        self._log = log
        self._broker = broker
        self._share = share
        self._values = values
        self._writing = asyncio.Lock()
        #: The save in the background.
        self._saving: asyncio.Task[None] | None = None
        self._entries: dict[str, Entry] = self._load()
        self._dirty = False
        self._saved_at = 0.0

    def report(self, report: Report, now: int) -> None:
        """Note a reader's position. Raises TooManyReaders or NotYours."""
        entry = self._entry(report.reader, report.owner, now)
        entry.view, entry.where, entry.position = report.view, report.where, report.position
        entry.lag_rows, entry.lag_seconds, entry.lost_from = report.lag_rows, report.lag_seconds, report.lost_from
        entry.pin, entry.peer = report.pin, report.peer

    async def begin(self, request: TakeLease, now: int) -> bool:
        """Let a query lease under the reader's name, which it takes over from older queries, durably on return.

        False: a newer query has taken over the name. Raises TooManyReaders or NotYours.
        """
        entry = self._entry(request.reader, request.owner, now)
        if request.instance in entry.former:
            return False
        is_new = request.instance != entry.instance
        if is_new:
            if entry.instance:
                entry.former = [*entry.former, entry.instance][-MOST_FORMER:]
            entry.instance = request.instance
        if not entry.view:
            first = request.queues[0] if request.queues else ""
            entry.view = "leased"
            entry.where = first if len(request.queues) < 2 else f"{first} and {len(request.queues) - 1} more"
        if entry.view == "leased":
            entry.position = max(entry.position, request.start)
        if is_new:
            await self.save()  # after a crash, one that was taken over must not take over itself
        return True

    def check_owner(self, reader: str, caller: str) -> None:
        """Raises NotYours if the reader has another owner than the caller."""
        entry = self._entries.get(reader)
        if entry is not None:
            check_owner("reader", reader, entry.owner, caller)

    def forget(self, reader: str) -> bool:
        """Drop a reader. False: it is unknown."""
        self._dirty = True
        return self._entries.pop(reader, None) is not None

    def unpin(self, reader: str) -> None:
        """Drop the reader's pin."""
        entry = self._entries.get(reader)
        if entry is not None:
            entry.pin = False
            self._dirty = True

    @property
    def count(self) -> int:
        """The number of readers."""
        return len(self._entries)

    def pins(self) -> list[Pin]:
        """All pins."""
        return [Pin(each.reader, each.position, each.at) for each in self._entries.values() if each.pin]

    def listed(self) -> list[ReaderRow]:
        """All readers, as operators see them, including those that have leases but never reported."""
        leased: Counter[str] = Counter()
        since: dict[str, int] = {}
        for lease in self._broker.leases.values():
            leased[lease.entry.reader] += len(lease.connection.out)
            since[lease.entry.reader] = lease.entry.since
        silent = [name for name in leased if name not in self._entries]
        entries = [*self._entries.values(), *(_silent_reader(name, since[name]) for name in silent)]
        rows = msgspec.convert(entries, list[ReaderRow], from_attributes=True)
        return [msgspec.structs.replace(row, leased=leased[row.reader]) for row in rows]

    def save_soon(self, clock: float) -> None:
        """Save changes in the background, every few seconds."""
        if self._dirty and clock - self._saved_at >= SAVE_SECONDS and (self._saving is None or self._saving.done()):
            self._saved_at = clock
            self._saving = asyncio.get_running_loop().create_task(self.save())

    async def save(self) -> None:
        """Save changes. On return they are durable, or the log has the reason why not."""
        async with self._writing:  # a waiting save may find nothing left to do
            if self._values is None or not self._dirty:
                self._dirty = False
                return
            self._dirty = False
            data = msgspec.json.encode(list(self._entries.values()))
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._values.put, NAME, data)
            except OSError as error:
                self._log.warning("the readers cannot be saved", value=NAME, reason=str(error))

    def _entry(self, reader: str, owner: str, now: int) -> Entry:
        entry = self._entries.get(reader)
        if entry is None:
            self._make_room(owner)
            entry = self._entries[reader] = Entry(reader=reader, view="", where="", position=0, at=now)
        check_owner("reader", reader, entry.owner, owner)
        self._dirty = True
        entry.owner = entry.owner or owner
        entry.at = now
        return entry

    def _make_room(self, owner: str) -> None:
        """Make room for a reader of this owner: among its own readers if it has its full share."""
        counts = Counter(each.owner for each in self._entries.values())
        full = bool(owner) and counts[owner] >= self._share
        if not full and len(self._entries) < MOST_READERS:
            return
        busy = {lease.entry.reader for lease in self._broker.leases.values()}
        theirs = [each for each in self._entries.values() if each.owner == owner or not full]
        loose = [each for each in theirs if not each.pin and each.reader not in busy]
        if not loose:
            what = f"{len(theirs)} readers {'of yours ' if full else ''}have pinned or leased something already"
            raise TooManyReaders(f"{what}, and there may be no more: drop those that will not come back")
        del self._entries[min(loose, key=lambda each: (-counts[each.owner], each.at)).reader]

    def _load(self) -> dict[str, Entry]:
        if self._values is None:
            return {}
        try:
            data = self._values.get(NAME)
            found = msgspec.json.decode(data, type=list[Entry]) if data is not None else []
        except (OSError, msgspec.MsgspecError) as error:
            self._log.warning("the readers are forgotten: they cannot be read", value=NAME, reason=str(error))
            with contextlib.suppress(OSError):
                self._values.set_aside(NAME)
            return {}
        return {entry.reader: entry for entry in found}


def _silent_reader(reader: str, since: int) -> Entry:
    return Entry(reader=reader, view="leased", where="", position=0, at=since)
