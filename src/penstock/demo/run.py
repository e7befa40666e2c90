"""The demonstration: traffic goes in through three protocols, comes out as tables, and every count must agree."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple
from uuid import uuid4

from penstock.demo.agreement import Comparison, compare, history, sample
from penstock.demo.stack import Stack
from penstock.demo.traffic import Addresses, ClientCounts, send_and_consume

#: Seconds after which tables that are still incomplete count as wrong: a pipeline stands still.
PATIENCE = 300.0
#: Seconds between two comparisons.
COMPARE_EVERY = 1.0


class DemoOutcome(NamedTuple):
    """The comparisons, and some rows of the archive. All counts of this run's clients are under the ID ``run``."""

    run: str
    comparisons: list[Comparison]
    sample: list[dict[str, Any]]

    @property
    def wrong(self) -> int:
        """Comparisons that do not agree."""
        return sum(not each.agrees for each in self.comparisons)


def run_demo(stack: Stack, report: Callable[[str], None], interrupted: Event) -> DemoOutcome | None:
    """Send, wait for the tables, and compare. None if it was interrupted. Raises ProcessFailed and ClientError."""
    counts = ClientCounts(uuid4().hex[:8])
    addresses = Addresses(**{name: stack.broker.addresses[name] for name in Addresses.__struct_fields__})
    for step in send_and_consume(addresses, counts, stack.losses):
        if interrupted.is_set():
            return None
        report(step)
    report("waiting for the tables")
    deadline = time.monotonic() + PATIENCE
    while True:
        found = compare(counts, history(stack.broker.addresses["flight"]), stack.options.lake)
        if all(each.agrees for each in found) or time.monotonic() > deadline:
            return DemoOutcome(counts.run, found, sample(stack.options.lake, counts.run))
        if interrupted.is_set():
            return None
        stack.check()
        time.sleep(COMPARE_EVERY)
