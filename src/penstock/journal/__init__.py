"""The durable, ordered log of events. Each commit is one block, and each block is columnar.

    block         one commit in bytes, and back: `encode`, `parse`, `Block`
    rows          single messages out of blocks: `Message`
    log           the contract of a log: `Log`, `Durability`; `errors` has what can go wrong
    memory        the log in memory: `MemoryLog`
    files         the log in a folder: `FileLog`, which stands on
      disk          the only door to files: `Disk`, `RealDisk`
      folder        whose folder it is, and the lock
      segment       the layout of a segment file, its index
      writing       the segment that grows
      reading       blocks in order, by position, and after a bad one
      recovery      what a start checks and puts right
      tail          how far it goes, for other processes: `TailReader`
    checkpoints   the state before a position: `Checkpoints`
    committer     group commit in a thread: `Committer`
    following     reading from another process: `JournalReader`, `DataLoss`; it stands on
      mapped        segments as others read them
      catalogue     the names of the queues
    arrow         what is read as Arrow batches; needs pyarrow, so it is not imported here
      placed        messages by where they lie, for those that are in a queue
      merging       many small blocks as one
      selecting     which rows, and how many blocks make a batch
    survey        every byte looked at
    repair        what to do about damage; `bridge` is put over what is lost, `rewriting` does it

A batch's way in: `Committer` → `FileLog.append` → `block.encode` → `SegmentWriter` → `Disk`. A block's way out:
`Disk` → `read_blocks` → `block.parse` → `Block`, whose columns are views of the bytes that were read. docs/journal.md
has the format, byte by byte.
"""

from penstock.journal.committer import Committer, Staged
from penstock.journal.errors import (
    Fenced,
    Gone,
    JournalDamaged,
    JournalRefused,
    LogClosed,
    LogError,
    LogFailed,
    LogFull,
)
from penstock.journal.files.checkpoints import Checkpoint, Checkpoints
from penstock.journal.files.disk import Disk, RealDisk
from penstock.journal.files.follower import DataLoss, JournalReader, Replaced, Trimmed
from penstock.journal.files.log import FileLog, FileLogOptions
from penstock.journal.files.tail import Tail, TailReader
from penstock.journal.format.block import Batch, Block, BlockError
from penstock.journal.format.rows import Message
from penstock.journal.log import Durability, Log
from penstock.journal.memory import MemoryLog

__all__ = [
    "Batch",
    "Block",
    "BlockError",
    "Checkpoint",
    "Checkpoints",
    "Committer",
    "DataLoss",
    "Disk",
    "Durability",
    "Fenced",
    "FileLog",
    "FileLogOptions",
    "Gone",
    "JournalDamaged",
    "JournalReader",
    "JournalRefused",
    "Log",
    "LogClosed",
    "LogError",
    "LogFailed",
    "LogFull",
    "MemoryLog",
    "Message",
    "RealDisk",
    "Replaced",
    "Staged",
    "Tail",
    "TailReader",
    "Trimmed",
]
