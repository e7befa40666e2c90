"""Names of readers and writers: who owns each, and how many one identity may have.

A name belongs to the identity that created it. A name without an owner, from a broker without access rules, belongs to
the next identity that uses it. The empty identity may use all names: there are no rules, or an operator asks.
"""

from __future__ import annotations

from typing import Literal

from penstock.core.broker import Broker
from penstock.core.commands.write import TooManyWriters
from penstock.flight.flight_requests import Write
from penstock.server.options.broker_options import Limits

#: Of readers and writers. The journal names them as the source of events.
NAME_BYTES = 255


class BadName(Exception):
    """The name is empty or too long."""


class NotYours(Exception):
    """The name belongs to another identity. The text says what to do, and does not reveal the owner."""


def check_name(what: Literal["reader", "writer"], name: str) -> None:
    """Raises BadName."""
    if not 0 < len(name.encode()) <= NAME_BYTES:
        raise BadName(f"a {what} has a name of 1 to {NAME_BYTES} bytes, not {len(name.encode())}")


def check_owner(what: Literal["reader", "writer"], name: str, owner: str, caller: str) -> None:
    """Raises NotYours if the name has another owner than the caller."""
    if caller and owner and caller != owner:
        raise NotYours(
            f"the {what} {name!r} belongs to another identity: choose another name, or let an operator drop it "
            f"(penstock {what}s list)"
        )


def check_writer(broker: Broker, name: str, caller: str) -> None:
    """Raises NotYours if the writer has another owner than the caller."""
    writer = broker.writers.get(name)
    if writer is not None:
        check_owner("writer", name, writer.owner, caller)


def check_share(broker: Broker, request: Write, limits: Limits) -> None:
    """Raises TooManyWriters if a chunk would give its identity more writers, or partitions, than it may have."""
    if not request.owner:
        return
    writers, partitions = broker.shares.get(request.owner, (0, 0))
    named = broker.writers.get(request.writer)
    own = named if named is not None and named.owner == request.owner else None
    if own is None and writers >= limits.writers_per_identity:
        raise TooManyWriters(
            f"you have {writers} writers already, and may have no more (limits.writers_per_identity): end those that "
            f"will not come back, or write under fewer names"
        )
    same_epoch = own is not None and own.epoch == request.epoch
    if own is not None and not same_epoch:
        partitions -= len(own.chunks)
    is_new = own is None or not same_epoch or request.partition not in own.chunks
    if is_new and partitions >= limits.partitions_per_identity:
        raise TooManyWriters(
            f"your writers have {partitions} partitions already, and may have no more "
            f"(limits.partitions_per_identity): write with fewer partitions, or end writers that will not come back"
        )
