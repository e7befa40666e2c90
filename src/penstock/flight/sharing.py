"""Short-circuit reads: a process on this machine is told which files have the rows of a range, and maps them itself.

Rights, the range and losses are looked at here, as for a read through Flight, and the queues are told by number: the
process only opens files, which the system lets it, or not. Where anything is out of the ordinary it is told nothing,
and reads through Flight.
"""

from __future__ import annotations

from penstock.flight.access import Caller
from penstock.flight.calls import Share, Shared
from penstock.flight.history import History
from penstock.flight.machine import machine
from penstock.flight.problems import trouble
from penstock.journal.format.block import BlockError

#: Names of queues that one answer has at most: with more of them rows are cheaper than names.
MOST_NAMES = 50_000


def share(history: History, call: Share, caller: Caller) -> Shared:
    """Where the rows of a range lie. Raises as ``History.read`` does."""
    if call.view not in ("messages", "events"):
        raise trouble("bad-request", f"{call.view} is not a range of the history: this is for messages and events")
    queues = history.chooser(call, caller, accept_loss=call.accept_loss)
    checked = history.check(call)
    if not call.machine or call.machine != machine():
        return Shared(here=False)
    if checked.losses:
        return Shared(here=True)
    try:
        extents = history.reader.shared(checked.start, checked.stop, queues)
    except (FileNotFoundError, BlockError):  # trimmed just now, or damaged: a read tells what that means
        return Shared(here=True)
    if sum(len(extent.names) for extent in extents) > MOST_NAMES:
        return Shared(here=True)
    return Shared(here=True, identity=f"{history.reader.identity:016x}", everything=queues is None, extents=extents)
