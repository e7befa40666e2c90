"""Short-circuit reads: a process on this machine learns which files hold the rows of a range, and maps them itself.

Rights, the range and losses are checked here, as for a read through Flight, and queues are sent as numbers. The process
only opens files, if the operating system lets it. In any unusual case the answer is empty, and the process reads
through Flight.
"""

from __future__ import annotations

from penstock.flight.access import Caller
from penstock.flight.calls import Share, Shared
from penstock.flight.history import History
from penstock.flight.machine import machine
from penstock.flight.problems import trouble
from penstock.journal.format.block import BlockError

#: Names of queues in one answer: with more of them, sending rows is cheaper than sending names.
MOST_NAMES = 50_000


def share(history: History, call: Share, caller: Caller) -> Shared:
    """The files with the rows of a range. Raises as ``History.read`` does."""
    if call.view not in ("messages", "events"):
        raise trouble("bad-request", f"{call.view} has no range of positions: use messages or events")
    queues = history.chooser(call, caller, accept_loss=call.accept_loss)
    checked = history.check(call)
    if not call.machine or call.machine != machine():
        return Shared(here=False)
    if checked.losses:
        return Shared(here=True)
    try:
        extents = history.reader.shared(checked.start, checked.stop, queues)
    except (FileNotFoundError, BlockError):  # trimmed just now, or damaged: a read finds out which
        return Shared(here=True)
    if sum(len(extent.names) for extent in extents) > MOST_NAMES:
        return Shared(here=True)
    return Shared(here=True, identity=f"{history.reader.identity:016x}", everything=queues is None, extents=extents)
