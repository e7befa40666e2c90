"""The contract of a journal: what the rest of Penstock may expect of whatever keeps its events.

``open_journal(url)`` gives a ``Journal``, which touches nothing until one of its roles is taken:

    journal.own()       the broker that writes it: an ``OwnedJournal`` with the log, checkpoints, values and space
    journal.follow()    a reader, in any process, while a broker writes, compacts, stops and starts: a ``Follower``
    journal.stand_by()  a broker that waits to be the owner, where a journal is ``shared``: a ``Standby``
    journal.tools()     who checks, shows and repairs it: ``JournalTools``

Everything is said in positions of events. A log is cut into *extents*, stretches that are given back as a whole; what
an extent is made of (a file, memory, a partition of a table) only the journal knows. One suite,
tests/journal/test_log_contract.py, runs against every implementation.

Taking over: each owner ``seal``s the log with a higher *epoch* before its first append, and an append names the epoch
and the position that it expects the log's *head* to have. So an owner that was replaced can add nothing, whatever it
believes. What else keeps two owners apart (a lock, a lease) only decides who tries: ``own`` raises JournalRefused where
another owner is there. Where that is a lease, ``own`` has raised the epoch already: nothing of the owner before can
come after what is recovered. Handing out a message is no event, so an owner with a lease hands out nothing after the
lease's ``deadline``.
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
