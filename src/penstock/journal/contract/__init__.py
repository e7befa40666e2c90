"""The contract of a journal: what the rest of Penstock may expect of the storage of its events.

``open_journal(url)`` returns a ``Journal``, which touches nothing until it is opened in a role:

    journal.own()       the broker that writes it: an ``OwnedJournal`` with log, checkpoints, values and space
    journal.follow()    a reader in any process, while a broker writes, compacts, stops and starts: a ``Follower``
    journal.stand_by()  a broker that waits to become the owner of a ``shared`` journal: a ``Standby``
    journal.tools()     commands that check, show and repair it: ``JournalTools``

All methods speak of positions of events. A log consists of *extents*, which retention removes as a whole; only the
journal knows what an extent is made of (a file, memory, a partition of a table). One test suite,
tests/journal/test_log_contract.py, runs against every implementation.

Fencing: each owner ``seal``s the log with a higher *epoch* before its first append. An append states the epoch and the
position at which it expects the *head* of the log, so a replaced owner can append nothing, whatever it believes. The
lock or lease only decides who tries: ``own`` raises JournalRefused if there is another owner. Where there is a lease,
``own`` has already raised the epoch: nothing of the previous owner can follow what is recovered. Deliveries are not
events, so an owner with a lease delivers nothing after the lease's ``deadline``.
"""

from __future__ import annotations

from penstock.journal.contract.journal import Journal, Standby
from penstock.journal.contract.log import (
    FIRST_POSITION,
    GAP,
    PACE_BEGAN,
    UNBOUNDED,
    BadRange,
    Columns,
    Durability,
    Extent,
    Log,
    OwnerOptions,
    resume_after,
    since_began,
)
from penstock.journal.contract.owner import Checkpoint, CheckpointStore, Lease, OwnedJournal, Space, ValueStore
from penstock.journal.contract.readers import (
    BlockReader,
    Follower,
    HeldExtent,
    LocatedBlock,
    SharedExtent,
    Span,
    Tail,
)
from penstock.journal.contract.tools import (
    AcceptedLoss,
    Defect,
    ExtentInfo,
    JournalInfo,
    JournalTools,
    Progress,
    Repair,
    Verdict,
)

__all__ = [
    "FIRST_POSITION",
    "GAP",
    "PACE_BEGAN",
    "UNBOUNDED",
    "AcceptedLoss",
    "BadRange",
    "BlockReader",
    "Checkpoint",
    "CheckpointStore",
    "Columns",
    "Defect",
    "Durability",
    "Extent",
    "ExtentInfo",
    "Follower",
    "HeldExtent",
    "Journal",
    "JournalInfo",
    "JournalTools",
    "Lease",
    "LocatedBlock",
    "Log",
    "OwnedJournal",
    "OwnerOptions",
    "Progress",
    "Repair",
    "SharedExtent",
    "Space",
    "Span",
    "Standby",
    "Tail",
    "ValueStore",
    "Verdict",
    "resume_after",
    "since_began",
]
