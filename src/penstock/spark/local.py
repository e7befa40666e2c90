"""Short-circuit reads: on the broker's own machine, rows are read from the journal's files, which tasks map themselves.

The endpoint is asked for each part: it looks at rights, range and losses, and names the files. Whatever stands in the
way (another machine, files that may not be opened or are gone, an endpoint that knows nothing of it) leads to
``NotLocal``, and the part, or what is left of it, is read through Flight, which also finds the words for what is wrong.
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
from penstock.spark.errors import SourceError

#: Seconds for which an endpoint elsewhere is not asked again in this process, nor one whose files can't be opened here:
#: a container has files of its own, and takes the broker's machine for its own.
REFUSED_SECONDS = 60.0

_refused: dict[str, float] = {}


class NotLocal(Exception):
    """It is to be read through Flight."""


def read_locally(endpoint: FlightEndpoint, read: Read) -> Iterator[pa.RecordBatch]:
    """The rows of a part.

    Raises NotLocal, before the first batch or later, and what the endpoint has against the read.
    """
    if read.view not in ("messages", "events") or time.monotonic() < _refused.get(endpoint.place, 0):
        raise NotLocal
    shared = _ask(endpoint, read)
    if not shared.here:
        _refused[endpoint.place] = time.monotonic() + REFUSED_SECONDS
    if not shared.extents:
        raise NotLocal
    reader = SharedExtentReader(int(shared.identity, 16), shared.extents)
    # Names of others are not told.
    queues = None if shared.everything else lambda name: True
    try:
        yield from arrow.read(reader, read.view, read.start, read.stop, queues=queues, columns=read.columns or None)
    except (OSError, LogError, BlockError) as error:
        if isinstance(error, OSError | Gone):
            _refused[endpoint.place] = time.monotonic() + REFUSED_SECONDS
        log.info("the journal's files can't be read here, Flight is used: %s", error)
        raise NotLocal from None


def _ask(endpoint: FlightEndpoint, read: Read) -> Shared:
    call = Share(
        queue=read.queue,
        pattern=read.pattern,
        view=read.view,
        start=read.start,
        stop=read.stop,
        identity=read.identity,
        accept_loss=read.accept_loss,
        machine=machine(),
    )
    try:
        return endpoint.ask(call, Shared)
    except SourceError as error:
        if type(error) is SourceError:  # an earlier version of the broker has no such action
            raise NotLocal from None
        raise
