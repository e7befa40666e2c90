"""The journal that the options ask for, how much history it keeps, and the broker's own folder."""

from __future__ import annotations

from penstock.core.policy import SECOND
from penstock.journal import Journal, open_journal
from penstock.journal.contract import Durability, OwnerOptions
from penstock.server.maintenance.retention import Retention
from penstock.server.options.broker_options import BrokerOptions

#: History that an ephemeral broker keeps for readers, and the part of ``limits.state_bytes`` that it is at most; how
#: many extents that are, the fewest bytes of one, and by how much one grows.
EPHEMERAL_HISTORY = 64 * 2**20
EPHEMERAL_PART = 8
EPHEMERAL_EXTENTS = 8
EPHEMERAL_EXTENT = 64 * 1024
EPHEMERAL_STEP = 64 * 1024


def chosen_journal(options: BrokerOptions) -> Journal:
    """The journal. Nothing is touched yet. Raises JournalRefused for a URL that names none."""
    asked = options.journal
    if options.ephemeral:
        history = _ephemeral_history(options)
        extent = min(asked.segment_bytes, max(history // EPHEMERAL_EXTENTS, EPHEMERAL_EXTENT))
        return open_journal("memory:", OwnerOptions(extent_bytes=extent, reserve=EPHEMERAL_STEP))
    durability, age = Durability[asked.durability.upper()], asked.segment_seconds * SECOND
    notes = options.data if asked.url else ""
    owner = OwnerOptions(durability, asked.segment_bytes, age, notes=notes)
    return open_journal(asked.url or f"file:{options.data}", owner)


def chosen_retention(options: BrokerOptions) -> Retention:
    """How much history the journal keeps. In memory that is little: it counts as state."""
    asked = options.journal
    ages = asked.retention_seconds * SECOND, asked.pin_seconds * SECOND
    if not options.ephemeral:
        return Retention(ages[0], asked.retention_bytes, ages[1], asked.pin_bytes)
    history = _ephemeral_history(options)
    return Retention(
        ages[0], min(asked.retention_bytes or history, history), ages[1], min(asked.pin_bytes or history, history)
    )


def _ephemeral_history(options: BrokerOptions) -> int:
    return min(EPHEMERAL_HISTORY, max(options.limits.state_bytes // EPHEMERAL_PART, 1))
