"""The journal in memory: for tests, and for brokers without persistence (``--ephemeral``).

It is the journal of ``files`` on a disk of memory files (``memfd``). They have no name in any file system and disappear
with the last process that has them open, so a killed owner leaves nothing behind. Other processes of the same user
reach them through the owner's descriptors (``/proc/PID/fd``) and map them like files on disk: a mapped file stays
readable, and reading costs the owner nothing. One more memory file, the listing, maps file names to descriptors.

    listing
     0            8         12        16
    +------------+---------+---------+--------------------------------------+
    | generation | length  | CRC     | JSON: {name: [descriptor, inode], …} |
    +------------+---------+---------+--------------------------------------+
"""

from __future__ import annotations

import os
from contextlib import suppress
from struct import Struct
from threading import RLock
from time import sleep
from typing import NoReturn

import msgspec
from typing_extensions import override

from penstock.journal.contract import UNBOUNDED, Journal, JournalTools, OwnerOptions
from penstock.journal.errors import JournalRefused
from penstock.journal.files.disk import RealFile
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.journal import OwnedFiles
from penstock.journal.format.checksum import crc32
from penstock.journal.unbounded_space import UnboundedSpace

SCHEME = "memory:"
_HEADER = Struct("<QII")
#: How often a reader retries when it finds a half-written listing.
_TRIES = 1000


class MemoryJournal(Journal):
    """A journal in memory: a new one, or, by its ``address``, that of a running broker."""

    shared = False

    def __init__(self, address: str = "", options: OwnerOptions | None = None) -> None:
        """Raises JournalRefused for an invalid address."""
        self.where = SCHEME + address
        self._address = address
        self._options = options
        if address:
            _parse(address)

    @override
    def own(self) -> OwnedMemory:
        if self._address:
            raise JournalRefused(f"{self.where} belongs to a running broker: {SCHEME} alone is a new one")
        return OwnedMemory(self._options)

    @override
    def follow(self, *, identity: int | None = None) -> JournalReader:
        if not self._address:
            raise JournalRefused(f"{SCHEME} is a new journal: to read one, name its owner as in {SCHEME}PID/NUMBER")
        return JournalReader(SharedMemory(*_parse(self._address)), identity=identity)

    @override
    def stand_by(self) -> NoReturn:
        raise JournalRefused("a journal in memory ends with its broker: no other can stand by")

    @override
    def abandon(self) -> None:
        """Do nothing: memory never waits."""

    @override
    def tools(self) -> JournalTools:
        raise JournalRefused("a journal in memory cannot be checked or repaired: it ends with its broker")

    @override
    def transfer_source(self) -> NoReturn:
        raise JournalRefused("a journal in memory cannot be copied: it ends with its broker")

    @override
    def transfer_target(self) -> NoReturn:
        self.transfer_source()


def _parse(address: str) -> tuple[int, int]:
    process, _, number = address.partition("/")
    if not (process.isdecimal() and number.isdecimal()):
        raise JournalRefused(
            f"{SCHEME}{address} is not a journal: {SCHEME} is a new one, {SCHEME}PID/NUMBER a broker's"
        )
    return int(process), int(number)


class OwnedMemory(OwnedFiles):
    """The journal of a broker without persistence."""

    _may_be_damaged = False

    def __init__(self, options: OwnerOptions | None = None) -> None:
        self._memory = MemoryDisk()
        super().__init__(self._memory, options)
        self.space = UnboundedSpace()
        self.address = self._memory.address

    @property
    @override
    def memory_bytes(self) -> int:  # type: ignore[override]
        return sum(extent.size for extent in (*self.log.extents(), *self.log.kept()))

    @override
    def close(self) -> None:
        """Files that other processes have open stay readable for them."""
        super().close()
        self._memory.close()


class MemoryFile(RealFile):
    """An open memory file."""

    @override
    def read_now(self, size: int, offset: int) -> bytes | None:
        """Memory never waits."""
        return self.read(size, offset)

    @override
    def allocate(self, size: int) -> None:
        """Only set the size: allocating pages before they are written would make the kernel clear them first."""
        if size > self.size():
            self.truncate(size)

    @override
    def sync(self) -> None:
        pass

    def __del__(self) -> None:
        self.close()  # else a forgotten file would keep its memory


class MemoryDisk:
    """A folder of memory files. Any thread may use it.

    Implements ``Disk``, from which no interpreted class can inherit where that is compiled.
    """

    syncs = False

    def __init__(self) -> None:
        self.where = "memory"
        self._changing = RLock()
        self._files: dict[str, int] = {}
        self._listing = os.memfd_create("penstock-listing")
        self._generation = 0
        self._write_listing()

    @property
    def address(self) -> str:
        """The URL by which another process finds it."""
        return f"{SCHEME}{os.getpid()}/{self._listing}"

    def names(self) -> list[str]:
        """The files."""
        return list(self._files)

    def create(self, name: str) -> MemoryFile:
        """Create a file, which must not exist."""
        with self._changing:
            if name in self._files:
                raise FileExistsError(name)
            self._files[name] = os.memfd_create(f"penstock-{name}")
            self._write_listing()
            return self.open(name)

    def open(self, name: str) -> MemoryFile:
        """Open an existing file."""
        with self._changing:
            if name not in self._files:
                raise FileNotFoundError(name)
            return MemoryFile(os.dup(self._files[name]))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing another."""
        with self._changing:
            replaced = self._files.get(new)
            self._files[new] = self._files.pop(old)
            self._write_listing()
            if replaced is not None:
                os.close(replaced)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        with self._changing:
            gone = self._files.pop(name)
            self._write_listing()
            os.close(gone)

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def free(self) -> int:
        """Unbounded."""
        return UNBOUNDED

    def lock(self, name: str) -> MemoryFile:
        """Always succeeds: no other process can use this folder."""
        return MemoryFile(os.memfd_create("penstock-lock"))

    def close(self) -> None:
        """Close all files, which frees those that no other process has open."""
        with self._changing:
            for descriptor in (*self._files.values(), self._listing):
                if descriptor >= 0:
                    os.close(descriptor)
            self._files, self._listing = {}, -1

    def __del__(self) -> None:
        self.close()

    def _write_listing(self) -> None:
        """Replace the listing in one call, as other processes may be reading it."""
        self._generation += 1
        entries = {name: (number, os.fstat(number).st_ino) for name, number in self._files.items()}
        data = msgspec.json.encode(entries)
        os.pwrite(self._listing, _HEADER.pack(self._generation, len(data), crc32(data)) + data, 0)


class SharedMemory:
    """The memory files of another process, as ``SharedDisk``. Threads may share one."""

    def __init__(self, process: int, listing: int) -> None:
        """Raises JournalRefused if there is no such process, or it is another user's."""
        self.where = f"{SCHEME}{process}/{listing}"
        self._folder = f"/proc/{process}/fd"
        self._path = f"{self._folder}/{listing}"
        self._listing = -1
        try:
            self._listing = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._refuse()
        self._changing = RLock()
        self._generation = 0
        self._entries: dict[str, tuple[int, int]] = {}

    def __del__(self) -> None:
        if self._listing >= 0:
            os.close(self._listing)

    def names(self) -> list[str]:
        """The files."""
        return list(self._look())

    def numbered(self) -> list[tuple[str, int]]:
        """The files and their inodes."""
        return [(name, inode) for name, (_, inode) in self._look().items()]

    def number(self, name: str) -> int:
        """The inode of a file."""
        entry = self._look().get(name)
        if entry is None:
            raise FileNotFoundError(name)
        return entry[1]

    def open(self, name: str) -> MemoryFile:
        """Open an existing file."""
        return MemoryFile(self.descriptor(name))

    def descriptor(self, name: str) -> int:
        """The inode reveals a descriptor that was closed and now means another file."""
        number, inode = self._look().get(name, (-1, -1))
        with suppress(OSError):
            found = os.open(f"{self._folder}/{number}", os.O_RDONLY | os.O_CLOEXEC)
            if os.fstat(found).st_ino == inode:
                return found
            os.close(found)
        self._check_owner()
        raise FileNotFoundError(name)

    def path(self, name: str) -> str:
        """The path by which this process reaches a file."""
        entry = self._look().get(name)
        if entry is None:
            raise FileNotFoundError(name)
        return f"{self._folder}/{entry[0]}"

    def _look(self) -> dict[str, tuple[int, int]]:
        with self._changing:
            for _ in range(_TRIES):
                generation, length, checksum = _HEADER.unpack(os.pread(self._listing, _HEADER.size, 0))
                if generation == self._generation:
                    return self._entries
                data = os.pread(self._listing, length, _HEADER.size)
                if crc32(data) == checksum:
                    self._entries = msgspec.json.decode(data, type=dict[str, tuple[int, int]])
                    self._generation = generation
                    return self._entries
                sleep(0)
        raise JournalRefused(f"{self.where} cannot be read")

    def _check_owner(self) -> None:
        """Raise JournalRefused if the process is gone, or another one has its number."""
        try:
            if os.stat(self._path).st_ino == os.fstat(self._listing).st_ino:
                return
        except OSError:
            pass
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise JournalRefused(f"{self.where} cannot be read: the broker has ended, or is another user's") from None
