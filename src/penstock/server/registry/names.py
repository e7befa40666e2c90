"""Names of readers and writers: whose they are, and how many one identity may have.

A name belongs to the identity that made it. One without an owner, of a broker without access rules or of an older
journal, belongs to the first that uses it. An empty identity is everybody's: there are no rules, or an operator asks.
"""

from __future__ import annotations

from typing import Literal

from penstock.core.broker import Broker
from penstock.core.commands.write import TooManyWriters
from penstock.flight import flight_requests as requests
from penstock.server.options.broker_options import Limits


class NotYours(Exception):
    """The name belongs to another identity. The text says what to do, and not whose it is."""


def check_owner(what: Literal["reader", "writer"], name: str, owner: str, caller: str) -> None:
    """Raises NotYours if the name has another owner than the caller."""
    if caller and owner and caller != owner:
        raise NotYours(
            f"the {what} {name!r} belongs to another identity: choose another name, or let an operator drop it "
            f"(penstock {what}s list)"
        )


def check_writer(broker: Broker, name: str, caller: str) -> None:
    """Raises NotYours if the writer is somebody else's."""
    known = broker.writers.get(name)
    if known is not None:
        check_owner("writer", name, known.owner, caller)


def check_share(broker: Broker, request: requests.Write, limits: Limits) -> None:
    """Raises TooManyWriters if a chunk would give its identity more writers, or partitions, than it may have."""
    if not request.owner:
        return
    writers, partitions = broker.shares.get(request.owner, (0, 0))
    known = broker.writers.get(request.writer)
    mine = known if known is not None and known.owner == request.owner else None
    if mine is None and writers >= limits.writers_per_identity:
        raise TooManyWriters(
            f"you have {writers} writers already, and may have no more (limits.writers_per_identity): end those that "
            f"will not come back, or write under fewer names"
        )
    goes_on = mine is not None and mine.epoch == request.epoch
    if mine is not None and not goes_on:
        partitions -= len(mine.chunks)
    is_new = mine is None or not goes_on or request.partition not in mine.chunks
    if is_new and partitions >= limits.partitions_per_identity:
        raise TooManyWriters(
            f"your writers have {partitions} partitions already, and may have no more "
            f"(limits.partitions_per_identity): write with fewer partitions, or end writers that will not come back"
        )


def listed_writers(broker: Broker, owner: str) -> list[requests.Writer]:
    """The owner's writers, or all, by name."""
    return [
        requests.Writer(writer=name, owner=each.owner, epoch=each.epoch, partitions=len(each.chunks), at=each.at)
        for name, each in sorted(broker.writers.items())
        if not owner or each.owner == owner
    ]
