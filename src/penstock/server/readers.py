"""Who reads the journal, how far each is, and what is kept for them.

Readers tell where they are; nothing but their pins and their leases depends on it. So it is written to the data folder
now and then, and not with every word: after a crash a reader may seem to be a few seconds further back than it is. Only
which query of a name is the newest is written down before that query is answered.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.core.broker import Broker
from penstock.flight import requests
from penstock.server.logs import Log

NAME = "readers.json"
#: Seconds between two writes of the file.
SAVE_SECONDS = 5.0
#: Readers that are remembered. Who was not heard of for the longest time makes room; a pin does not.
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
    pin: bool = False
    peer: str = ""
    #: When it was last heard of.
    at: int
    #: The query that leases under this name, and those that did before.
    instance: str = ""
    former: list[str] = []


class Pin(NamedTuple):
    """History is to be kept from a position on, for a reader that was heard of at a time."""

    reader: str
    position: int
    at: int


class TooMany(Exception):
    """There is no room for another reader. The text says what to do."""


class Readers:
    """All readers. ``folder`` is the data folder; without one, nothing is kept after the end."""

    def __init__(self, log: Log, folder: Path | None = None) -> None:
        self._log = log
        self._path = folder / NAME if folder is not None else None
        self._entries: dict[str, Entry] = self._load()
        self._dirty = False
        self._saved_at = 0.0

    def report(self, told: requests.Report, now: int) -> None:
        """A reader is this far. Raises TooMany."""
        entry = self._entry(told.reader, now)
        entry.view, entry.where, entry.position = told.view, told.where, told.position
        entry.lag_rows, entry.lag_seconds = told.lag_rows, told.lag_seconds
        entry.pin, entry.peer = told.pin, told.peer

    def begin(self, asked: requests.Lease, now: int) -> bool:
        """A reader leases. False: another query has taken over its name. The newest to begin has it. Raises TooMany."""
        entry = self._entry(asked.reader, now)
        if asked.instance in entry.former:
            return False
        is_new = asked.instance != entry.instance
        if is_new:
            if entry.instance:
                entry.former = [*entry.former, entry.instance][-MOST_FORMER:]
            entry.instance = asked.instance
        if not entry.view:
            first = asked.queues[0] if asked.queues else ""
            entry.view = "leased"
            entry.where = first if len(asked.queues) < 2 else f"{first} and {len(asked.queues) - 1} more"
        if entry.view == "leased":
            entry.position = max(entry.position, asked.start)
        if is_new:
            self._write(sync=True)  # after a crash, one that was taken over must not take over itself
        return True

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

    def pins(self) -> list[Pin]:
        """What is to be kept. May be called from any thread."""
        return [Pin(each.reader, each.position, each.at) for each in list(self._entries.values()) if each.pin]

    def listed(self, broker: Broker) -> list[requests.Reader]:
        """All of them, as operators see them. Whoever has leases is there, whether it was heard of or not."""
        leased: Counter[str] = Counter()
        since: dict[str, int] = {}
        for lease in broker.leases.values():
            leased[lease.entry.reader] += len(lease.connection.out)
            since[lease.entry.reader] = lease.entry.since
        unheard = [name for name in leased if name not in self._entries]
        entries = [*self._entries.values(), *(_unheard(name, since[name]) for name in unheard)]
        return [
            requests.Reader(
                reader=each.reader,
                view=each.view,
                where=each.where,
                position=each.position,
                lag_rows=each.lag_rows,
                lag_seconds=each.lag_seconds,
                pin=each.pin,
                peer=each.peer,
                at=each.at,
                leased=leased[each.reader],
            )
            for each in entries
        ]

    def save(self, clock: float | None = None) -> None:
        """Write the file if there is something new, and the last time is long enough ago; without a clock it is."""
        if not self._dirty or (clock is not None and clock - self._saved_at < SAVE_SECONDS):
            return
        if clock is not None:
            self._saved_at = clock
        self._write()

    def _write(self, *, sync: bool = False) -> None:
        self._dirty = False
        if self._path is None:
            return
        temporary = self._path.with_name(f"{NAME}.new")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(list(self._entries.values())))
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            self._log.warning("the readers can not be written down", file=str(self._path), reason=str(error))

    def _entry(self, reader: str, now: int) -> Entry:
        self._dirty = True
        entry = self._entries.get(reader)
        if entry is None:
            self._make_room()
            entry = self._entries[reader] = Entry(reader=reader, view="", where="", position=0, at=now)
        entry.at = now
        return entry

    def _make_room(self) -> None:
        if len(self._entries) < MOST_READERS:
            return
        loose = [each for each in self._entries.values() if not each.pin]
        if not loose:
            raise TooMany(f"{MOST_READERS} readers have pinned history already: forget those that will not come back")
        del self._entries[min(loose, key=lambda each: each.at).reader]

    def _load(self) -> dict[str, Entry]:
        if self._path is None:
            return {}
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=list[Entry])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            self._log.warning("the readers are forgotten: their file can not be read", file=NAME, reason=str(error))
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path.with_name(f"{NAME}.damaged"))
            return {}
        return {entry.reader: entry for entry in found}


def _unheard(reader: str, since: int) -> Entry:
    return Entry(reader=reader, view="leased", where="", position=0, at=since)
