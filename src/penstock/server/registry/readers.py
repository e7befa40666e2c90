"""Who reads the journal, how far each is, and what is kept for them.

Readers tell where they are; nothing but their pins and their leases depends on it. So it is written to the journal's
values now and then, and not with every word: after a crash a reader may seem to be a few seconds further back than it
is. Only which query of a name is the newest is written down before that query is answered. Writing waits for the disk,
so it is done in another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import NamedTuple

import msgspec

from penstock.core.broker import Broker
from penstock.endpoint.readers_and_writers import ReaderRow
from penstock.flight.flight_requests import Report, TakeLease
from penstock.journal.contract import ValueStore
from penstock.server.logs import Logger
from penstock.server.registry.names import check_owner

NAME = "readers.json"
#: Seconds between two writes.
SAVE_SECONDS = 5.0
#: Readers that are remembered. Of the identity with the most, who was not heard of for the longest time makes room; who
#: has pinned or leased something does not.
MOST_READERS = 1_000
#: Queries of one reader's name that were taken over, and are remembered: older ones have long given up.
MOST_FORMER = 20


class Entry(msgspec.Struct, kw_only=True):
    """What is known of a reader."""

    reader: str
    view: str
    where: str
    position: int
    lag_rows: int = 0
    lag_seconds: float = 0.0
    lost_from: int = 0
    pin: bool = False
    peer: str = ""
    #: When it was last heard of.
    at: int
    #: The query that leases under this name, and those that did before.
    instance: str = ""
    former: list[str] = []
    #: The identity that it belongs to; empty for one of a broker without access rules, or of an older file.
    owner: str = ""


class Pin(NamedTuple):
    """History is to be kept from a position on, for a reader that was heard of at a time."""

    reader: str
    position: int
    at: int


class TooManyReaders(Exception):
    """There is no room for another reader. The text says what to do."""


class ReaderTable:
    """All readers. ``values`` are the journal's; without them, nothing is kept after the end.

    ``share`` is how many one identity may have.
    """

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
        #: The write that goes on beside everything else.
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
        """Drop a reader. False: it is not known."""
        self._dirty = True
        return self._entries.pop(reader, None) is not None

    def unpin(self, reader: str) -> None:
        """History is not kept for this reader any more."""
        entry = self._entries.get(reader)
        if entry is not None:
            entry.pin = False
            self._dirty = True

    @property
    def count(self) -> int:
        """How many are remembered."""
        return len(self._entries)

    def pins(self) -> list[Pin]:
        """What is to be kept. May be called from any thread."""
        return [Pin(each.reader, each.position, each.at) for each in list(self._entries.values()) if each.pin]

    def listed(self) -> list[ReaderRow]:
        """All of them, as operators see them. Whoever has leases is there, whether it was heard of or not."""
        leased: Counter[str] = Counter()
        since: dict[str, int] = {}
        for lease in self._broker.leases.values():
            leased[lease.entry.reader] += len(lease.connection.out)
            since[lease.entry.reader] = lease.entry.since
        unheard = [name for name in leased if name not in self._entries]
        entries = [*self._entries.values(), *(_unheard(name, since[name]) for name in unheard)]
        return [
            ReaderRow(
                reader=each.reader,
                view=each.view,
                where=each.where,
                position=each.position,
                lag_rows=each.lag_rows,
                lag_seconds=each.lag_seconds,
                lost_from=each.lost_from,
                pin=each.pin,
                peer=each.peer,
                at=each.at,
                leased=leased[each.reader],
                owner=each.owner,
            )
            for each in entries
        ]

    def save_soon(self, clock: float) -> None:
        """Have it written, beside everything else, if there is something new and the last time is long enough ago."""
        if self._dirty and clock - self._saved_at >= SAVE_SECONDS and (self._saving is None or self._saving.done()):
            self._saved_at = clock
            self._saving = asyncio.get_running_loop().create_task(self.save())

    async def save(self) -> None:
        """Write down what is new. On return it is durable, or the operator was told why not."""
        async with self._writing:  # who waited has it written by the one before, or writes what is newer
            if self._values is None or not self._dirty:
                self._dirty = False
                return
            self._dirty = False
            data = msgspec.json.encode(list(self._entries.values()))
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._values.put, NAME, data)
            except OSError as error:
                self._log.warning("the readers can not be written down", value=NAME, reason=str(error))

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
        """For one more of this owner: at the cost of its own readers if it has its share, else of whoever has most."""
        counts = Counter(each.owner for each in self._entries.values())
        full = bool(owner) and counts[owner] >= self._share
        if not full and len(self._entries) < MOST_READERS:
            return
        busy = {lease.entry.reader for lease in self._broker.leases.values()}
        theirs = [each for each in self._entries.values() if each.owner == owner or not full]
        loose = [each for each in theirs if not each.pin and each.reader not in busy]
        if not loose:
            what = f"{len(theirs)} readers {'of yours ' if full else ''}have pinned or leased something already"
            raise TooManyReaders(f"{what}, and there may be no more: forget those that will not come back")
        del self._entries[min(loose, key=lambda each: (-counts[each.owner], each.at)).reader]

    def _load(self) -> dict[str, Entry]:
        if self._values is None:
            return {}
        try:
            data = self._values.get(NAME)
            found = msgspec.json.decode(data, type=list[Entry]) if data is not None else []
        except (OSError, msgspec.MsgspecError) as error:
            self._log.warning("the readers are forgotten: they can not be read", value=NAME, reason=str(error))
            with contextlib.suppress(OSError):
                self._values.set_aside(NAME)
            return {}
        return {entry.reader: entry for entry in found}


def _unheard(reader: str, since: int) -> Entry:
    return Entry(reader=reader, view="leased", where="", position=0, at=since)
