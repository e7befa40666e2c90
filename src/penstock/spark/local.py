"""Short-circuit reads: on the broker's own machine, tasks map the journal's files themselves.

A task requests each part from the endpoint, which checks rights, range and losses and names the files. Any obstacle
(another machine, files that can't be opened or are gone) raises ``NotLocal``; then the part, or the rest of it, is read
through Flight, which also reports errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.flight.calls import Read, Share, Shared
from penstock.flight.machine import machine
from penstock.journal.errors import Gone, LogError
from penstock.journal.format.block import BlockError
from penstock.journal.shared_extents import SharedExtentReader
from penstock.journal.views import arrow
from penstock.spark.endpoint import FlightEndpoint, log

#: Seconds before an endpoint is asked again after it was on another machine or its files could not be opened: a
#: container has its own files but appears to be on the broker's machine.
REFUSED_SECONDS = 60.0

_refused: dict[str, float] = {}


class NotLocal(Exception):
    """The part must be read through Flight."""


def read_locally(endpoint: FlightEndpoint, read: Read) -> Iterator[pa.RecordBatch]:
    """The rows of a part.

    Raises NotLocal, before the first batch or later, and the endpoint's errors about the read.
    """
    if read.view not in ("messages", "events") or time.monotonic() < _refused.get(endpoint.place, 0):
        raise NotLocal
    shared = endpoint.ask(_share(read), Shared)
    if not shared.here:
        _refused[endpoint.place] = time.monotonic() + REFUSED_SECONDS
    if not shared.extents:
        raise NotLocal
    reader = SharedExtentReader(int(shared.identity, 16), shared.extents)
    # Names of unselected queues are not sent.
    queues = None if shared.everything else lambda name: True
    try:
        yield from arrow.read(reader, read.view, read.start, read.stop, queues=queues, columns=read.columns or None)
    except (OSError, LogError, BlockError) as error:
        if isinstance(error, OSError | Gone):
            _refused[endpoint.place] = time.monotonic() + REFUSED_SECONDS
        log.info("the journal's files can't be read here, Flight is used: %s", error)
        raise NotLocal from None


def _share(read: Read) -> Share:
    return Share(
        queue=read.queue, pattern=read.pattern, view=read.view, start=read.start, stop=read.stop,
        identity=read.identity, accept_loss=read.accept_loss, machine=machine(),
    )  # fmt: skip
