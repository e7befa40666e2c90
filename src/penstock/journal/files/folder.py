"""The data folder as a whole: its description (``penstock.json``), and the lock of its broker (``lock``).

``penstock.json`` is human-readable and contains what must never be lost: the format, the journal's identity, its epoch,
and the position from which on every event is required. It is replaced atomically by a rename, and has a checksum of its
other values.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.journal.errors import JournalRefused
from penstock.journal.files.disk import Disk, FileLock, Held, read_whole, replace_whole
from penstock.journal.format.block import VERSION, other_format
from penstock.journal.format.checksum import crc32

NAME = "penstock.json"
LOCK = "lock"


class OtherFormat(ValueError):
    """The journal has a format that this Penstock does not read."""


class Folder(NamedTuple):
    """The contents of ``penstock.json``. ``created`` is in microseconds since 1970."""

    identity: int
    created: int
    epoch: int = 0
    #: Events missing below were removed on purpose; events missing from here on are lost. 0: nothing was written yet.
    start: int = 0
    #: Ranges of positions, ends excluded, that an operator has given up by a repair.
    given_up: tuple[tuple[int, int], ...] = ()
    #: Numbering resumes here or higher, because events were lost: see ``contract.resume_after``. 0: none were.
    resumes: int = 0

    def encode(self) -> bytes:
        """The file's text."""
        values: dict[str, object] = {"format": VERSION, "identity": f"{self.identity:016x}", "created": self.created}
        values |= {"epoch": self.epoch, "start": self.start}
        if self.given_up:
            values["given_up"] = [list(lost) for lost in self.given_up]
        if self.resumes:
            values["resumes"] = self.resumes
        return (json.dumps({**values, "checksum": _checksum(values)}, indent=2) + "\n").encode()

    @classmethod
    def decode(cls, raw: bytes) -> Folder:
        """Parse the file. Raises ValueError with the reason."""
        values = json.loads(raw)
        if not isinstance(values, dict) or values.pop("checksum", None) != _checksum(values):
            raise ValueError("its checksum is wrong")
        if values["format"] != VERSION:
            raise OtherFormat(other_format(values["format"]))
        given_up = tuple((low, high) for low, high in values.get("given_up", ()))
        identity, resumes = int(values["identity"], 16), values.get("resumes", 0)
        return cls(identity, values["created"], values["epoch"], values["start"], given_up, resumes)


def _checksum(values: dict[str, object]) -> str:
    return f"{crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def take_lock(disk: Disk) -> FileLock:
    """Lock the folder. Raises JournalRefused if a running broker has it."""
    try:
        return disk.lock(LOCK)
    except Held as held:
        raise JournalRefused(
            f"{disk.where} is in use by another broker (process {held.holder or 'unknown'}): stop it first, or choose"
            f" another data folder"
        ) from None


def load_folder(disk: Disk) -> Folder | None:
    """The contents of ``penstock.json``, None if there is none. Raises JournalRefused if it is unreadable."""
    if NAME not in disk.names():
        return None
    try:
        return Folder.decode(read_whole(disk, NAME))
    except OtherFormat as error:
        raise JournalRefused(f"{disk.where}/{NAME} cannot be used: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalRefused(
            f"{disk.where}/{NAME} is damaged: {error}. Repair it: penstock journal repair {disk.where}"
        ) from None


def store_folder(disk: Disk, folder: Folder) -> None:
    """Replace ``penstock.json`` atomically."""
    replace_whole(disk, NAME, folder.encode())
