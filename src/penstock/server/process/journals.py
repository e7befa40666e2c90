"""The journal of a broker's options, and how much history it keeps."""

from __future__ import annotations

from penstock.core.policy import SECOND
from penstock.journal import Journal, open_journal
from penstock.journal.contract import Durability, OwnerOptions
from penstock.server.maintenance.retention import Retention
from penstock.server.options.broker_options import BrokerOptions

#: Most bytes of history that an ephemeral broker keeps for readers, which are also at most this part of
#: ``limits.state_bytes``; the number of extents for it, the least size of one, and the step in which it grows.
EPHEMERAL_HISTORY = 64 * 2**20
EPHEMERAL_PART = 8
EPHEMERAL_EXTENTS = 8
EPHEMERAL_EXTENT = 64 * 1024
EPHEMERAL_STEP = 64 * 1024


def chosen_journal(options: BrokerOptions) -> Journal:
    """The journal, not opened yet. Raises JournalRefused for an invalid URL."""
    wanted = options.journal
    if options.ephemeral:
        history = _ephemeral_history(options)
        extent = min(wanted.segment_bytes, max(history // EPHEMERAL_EXTENTS, EPHEMERAL_EXTENT))
        return open_journal("memory:", OwnerOptions(extent_bytes=extent, reserve=EPHEMERAL_STEP))
    durability, age = Durability[wanted.durability.upper()], wanted.segment_seconds * SECOND
    notes = options.data if wanted.url else ""
    owner = OwnerOptions(durability, wanted.segment_bytes, age, notes=notes)
    return open_journal(wanted.url or f"file:{options.data}", owner)


def chosen_retention(options: BrokerOptions) -> Retention:
    """How much history the journal keeps: little in memory, where it counts as state."""
    wanted = options.journal
    ages = wanted.retention_seconds * SECOND, wanted.pin_seconds * SECOND
    if not options.ephemeral:
        return Retention(ages[0], wanted.retention_bytes, ages[1], wanted.pin_bytes)
    history = _ephemeral_history(options)
    return Retention(
        ages[0], min(wanted.retention_bytes or history, history), ages[1], min(wanted.pin_bytes or history, history)
    )


def _ephemeral_history(options: BrokerOptions) -> int:
    return min(EPHEMERAL_HISTORY, max(options.limits.state_bytes // EPHEMERAL_PART, 1))
