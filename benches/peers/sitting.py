"""A sitting: every contestant in every row, round after round, each group against a server that was just started."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benches.peers import generator
from benches.peers.contestants import BY_KEY, Contestant
from benches.peers.generator import GeneratorError, Outcome
from benches.peers.processes import ServerError
from benches.peers.servers.base import Running, Server, running
from benches.peers.waiting import BACKLOGS, Backlog, Filling
from benches.peers.workloads import Group, Row

#: Seconds beyond its time after which a run is given up.
PATIENCE = 30.0


class CheckError(Exception):
    """Delivered messages differ from published ones."""


@dataclass(frozen=True)
class Plan:
    """The amount of measurements, and the contestants."""

    rounds: int
    seconds: float
    waiting: int
    groups: tuple[Group, ...]
    contestants: frozenset[str]
    folder: Path | None = None


@dataclass(frozen=True)
class Sample:
    """One run: the generator's counts, and the CPU share of the server's processes."""

    outcome: Outcome
    server_cpu: float


@dataclass
class Findings:
    """The results so far. ``samples`` are by row and contestant, ``failures`` are texts."""

    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    #: By measure of :mod:`benches.peers.waiting` and contestant.
    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class Sitting:
    """Runs a plan. It always stops its processes and removes its folders."""

    def __init__(self, plan: Plan, progress: Callable[[str], None]) -> None:
        self.plan = plan
        self.findings = Findings()
        self._progress = progress
        self._generator = Path()
        self._broken: set[str] = set()
        self._queues = itertools.count()  # every run has a queue of its own

    def run(self) -> Findings:
        folder = Path(tempfile.mkdtemp(prefix="bench-peers-", dir=self.plan.folder))
        try:
            self._generator = generator.compiled(folder)
            self._look_for(self._servers(self.plan.contestants))
            for round_ in range(self.plan.rounds):
                self._round(round_, folder)
            self._progress("")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return self.findings

    def _servers(self, keys: Iterable[str]) -> list[Server]:
        found = {BY_KEY[key].server.key: BY_KEY[key].server for key in BY_KEY if key in keys}
        return list(found.values())

    def _look_for(self, servers: list[Server]) -> None:
        for server in servers:
            install = server.missing()
            if install is None:
                self.findings.versions[server.title] = server.version()
            else:
                self.findings.missing[server.title] = install

    def _round(self, round_: int, folder: Path) -> None:
        for group in self.plan.groups:
            servers = self._servers(self.plan.contestants & set(group.contestants))
            there = [each for each in servers if self._is_there(each)]
            first = round_ % max(len(there), 1)  # rotate, so that no server always follows the same other one
            for server in [*there[first:], *there[:first]]:
                self._progress(f"round {round_ + 1} of {self.plan.rounds}: {group.key}, {server.title}")
                self._group(group, server, folder / f"{server.key}-{group.key}-{round_}")
        for backlog in BACKLOGS if self.plan.waiting else ():
            if self._takes_part(backlog.contestant) and not (backlog.slow and round_):
                self._progress(f"round {round_ + 1} of {self.plan.rounds}: waiting, {backlog.by.title}")
                self._backlog(backlog, folder / f"{backlog.contestant}-waiting-{round_}", first=round_ == 0)

    def _takes_part(self, key: str) -> bool:
        return key in self.plan.contestants and self._is_there(BY_KEY[key].server)

    def _is_there(self, server: Server) -> bool:
        return server.title not in self.findings.missing and server.title not in self._broken

    def _backlog(self, backlog: Backlog, folder: Path, *, first: bool) -> None:
        """Drain Redis only in the first round: it takes longest, and the result does not change."""
        filling = Filling(backlog, self._generator, folder, self.plan.waiting)
        try:
            measured = filling.measure(drain=first or backlog.by.server.key == "penstock")
        except (GeneratorError, ServerError) as error:
            if isinstance(error, ServerError):
                self._left_out(backlog.by.server, error)
            else:
                self._failed(f"waiting, {backlog.by.title}: {error}")
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for name, value in measured.items():
            self.findings.values[name, backlog.contestant].append(value)

    def _group(self, group: Group, server: Server, folder: Path) -> None:
        try:
            with running(server, folder) as found:
                for row in group.rows:
                    for key in row.flags:
                        if key in self.plan.contestants and BY_KEY[key].server.key == server.key:
                            self._measure(row, BY_KEY[key], found)
        except ServerError as error:
            self._left_out(server, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measure(self, row: Row, contestant: Contestant, found: Running) -> None:
        seconds = self.plan.seconds * row.times
        flags: dict[str, object] = {"seconds": seconds, "warm": seconds / 5, "queue": f"q{next(self._queues)}"}
        flags["timeout"] = PATIENCE + 2 * seconds
        if contestant.variant:
            flags["variant"] = contestant.variant
        cpu, began = found.process.cpu_seconds(), time.monotonic()
        try:
            outcome = generator.run(
                self._generator,
                contestant.protocol,
                found.ports[contestant.protocol],
                **flags,
                **row.flags[contestant.key],
            )
            check(outcome, consumed="consumers" in row.flags[contestant.key])
        except (GeneratorError, CheckError) as error:
            self._failed(f"{row.key}, {contestant.title}: {error}")
            return
        share = (found.process.cpu_seconds() - cpu) / (time.monotonic() - began)
        self.findings.samples[row.key, contestant.key].append(Sample(outcome, share))

    def _left_out(self, server: Server, error: ServerError) -> None:
        """Leave out a server that did not start, instead of waiting for it again."""
        self._failed(f"{error}; it is left out from here on")
        self._broken.add(server.title)

    def _failed(self, text: str) -> None:
        self.findings.failures.append(text)
        self._progress("")
        sys.stderr.write(f"{text}\n")


def check(outcome: Outcome, *, consumed: bool) -> None:
    """Check that all published messages were confirmed and delivered, and that idle connections were kept."""
    if outcome.confirmed != outcome.published:
        raise CheckError(f"{outcome.published} messages were published, {outcome.confirmed} confirmed")
    if consumed and outcome.distinct != outcome.published:
        raise CheckError(f"{outcome.published} messages were confirmed, {outcome.distinct} delivered")
    if outcome.idle_lost:
        raise CheckError(f"{outcome.idle_lost} idle connections were closed")
