"""Kill the broker, check its folder, start it again.

After every kill a copy of the folder is opened as by a start, and checked:

* Every message whose publishing was confirmed is alive, or its end is confirmed or in the journal.
* Nothing whose end was confirmed is alive, and nothing is shown after its end was confirmed.
* Every message alive is one that was published, byte for byte; a position never names two messages, a message never has
  two positions.
* Nothing is lost or invented in any queue, by the journal alone: its checkpoint and blocks add up (conservation), and
  reading all blocks without a checkpoint gives the same.

The next broker then starts on the original, as the kill left it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.folder import load_folder
from penstock.journal.files.log import FileLog
from penstock.schema import FINAL_KINDS, MESSAGE_KINDS
from penstock.server.engine.engine import locations, recover, table_of
from server.crash.notes import number_of

TESTS = Path(__file__).resolve().parents[2]
#: The longest life of a broker before it is killed, and the share that is killed while starting.
LIFE = 0.6
EARLY = 0.2
#: A broker that takes longer to start than this hangs.
PATIENCE = 60.0


class Broken(AssertionError):
    """A promise was not kept."""


class Round(NamedTuple):
    """The counts of one round, for the totals."""

    confirmed: int
    settled: int
    alive: int
    carried: int
    trimmed: bool
    checkpoint: bool
    started: bool


class Story:
    """One folder and the brokers that die in it."""

    def __init__(self, folder: Path, seed: int, durability: str) -> None:
        self.folder = folder
        self.seed = seed
        self.durability = durability
        self.random = Random(seed)
        self.data = folder / "data"
        self.notes = folder / "notes"
        self.round = 0
        self._read = 0
        self._ahead: subprocess.Popen[bytes] | None = None
        #: The broker's promises: position -> number, and the positions of messages that ended.
        self.numbers: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.confirmed: set[int] = set()
        self.settled: set[int] = set()
        self.purged: set[int] = set()
        #: Ends found in the journal.
        self.ended: set[int] = set()

    def run(self, rounds: int) -> Iterator[Round]:
        """Kill brokers for some rounds. Raises Broken, or any error of the broker or the checks."""
        try:
            for _ in range(rounds):
                self.round += 1
                started = self._kill_one(last=self.round == rounds)
                self._read_notes()
                yield self._check(started)
        finally:
            if self._ahead is not None:
                self._ahead.kill()
                self._ahead.communicate()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "server.crash.child", str(self.data), str(self.notes)]
        command += [str(number), str(self.seed), self.durability]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=TESTS)

    def _kill_one(self, *, last: bool) -> bool:
        """Let the next broker live for a while. Returns whether it was ready before it was killed."""
        child = self._ahead or self._start(self.round)
        self._ahead = None if last else self._start(self.round + 1)  # it starts up while this one works
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        early = self.random.random() < EARLY
        if not early:
            self._wait_until_up(child)
        time.sleep(self.random.random() * (LIFE / 10 if early else LIFE))
        died = child.poll()
        child.kill()
        _, errors = child.communicate()
        if died is not None:
            raise Broken(f"the broker ended by itself, with exit code {died}:\n{errors.decode(errors='replace')}")
        return not early or self._is_up()

    def _wait_until_up(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._is_up() and child.poll() is None:
            if time.monotonic() > deadline:
                raise Broken(f"the broker did not start within {PATIENCE} seconds")
            time.sleep(0.005)

    def _is_up(self) -> bool:
        if not self.notes.exists():
            return False
        with self.notes.open("rb") as file:
            file.seek(self._read)
            return b"U " in file.read(4096)

    # Promises

    def _read_notes(self) -> None:
        if not self.notes.exists():
            return
        with self.notes.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read += len(data)
        if whole < len(data):  # a line was cut by the kill: end it, so that the next broker begins a new one
            with self.notes.open("ab") as file:
                self._read += file.write(b"\n")
        for line in data[:whole].decode().splitlines():
            self._note(*line.split())

    def _note(self, kind: str = "", *values: str) -> None:
        numbers = list(map(int, values))
        if kind in ("P", "D"):
            position, number = numbers
            self._same(position, number)
            if kind == "P":
                self.confirmed.add(position)
            elif position in self.settled:
                raise Broken(f"message {position} was shown after its end was confirmed")
        elif kind == "S":
            self.settled.update(numbers)
        elif kind == "X":
            self.purged.update(numbers)

    def _same(self, position: int, number: int) -> None:
        """A position and a number belong together permanently."""
        if self.numbers.setdefault(position, number) != number:
            raise Broken(f"message {position} had number {self.numbers[position]}, and now has {number}")
        if self.positions.setdefault(number, position) != position:
            raise Broken(f"number {number} was at position {self.positions[number]}, and now is at {position}")
        if not 0 < number >> 32 <= self.round:
            raise Broken(f"message {position} has number {number}, which was never published")

    # Checks

    def _check(self, started: bool) -> Round:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if not self.data.exists():
            return Round(0, 0, 0, 0, False, False, started)
        shutil.copytree(self.data, copy)
        disk = RealDisk(copy)
        folder = load_folder(disk)
        if folder is None:
            if self.confirmed:
                raise Broken("the journal is gone")
            return Round(0, 0, 0, 0, False, False, started)
        checkpoint = Checkpoints(disk, folder.identity).newest_good()
        log = FileLog(disk)
        try:
            if checkpoint is not None:
                log.check_reach(checkpoint.position)
            table = recover(log, table_of(checkpoint))
            self._check_alike(table, recover(log, Table()))
            restore(table, log.end).check()
            self._note_ends(log)
            self._check_ends(set(table.columns["position"].tolist()))
            self._check_messages(log, table)
            carried = len(locations(table))
            counts = len(self.confirmed), len(self.settled), len(table), carried
            return Round(*counts, log.start > 1, checkpoint is not None, started)
        finally:
            log.close()

    def _check_alike(self, table: Table, replayed: Table) -> None:
        """Check that the checkpoint and the blocks after it give the same state as all blocks."""
        for name in ("position", "queue", "size"):
            if not np.array_equal(table.columns[name], replayed.columns[name]):
                raise Broken(f"column {name} differs with and without the checkpoint")
        for number, entry in table.meta.queues.items():
            other = replayed.meta.queues[number]
            if entry != other:
                raise Broken(f"queue {number} differs with and without the checkpoint: {entry} {other}")

    def _note_ends(self, log: FileLog) -> None:
        for block in log.read(log.start):
            kinds = block.kinds[~np.isin(block.kinds, list(MESSAGE_KINDS))]
            if block.has("message"):
                final = np.isin(kinds, list(FINAL_KINDS))
                self.ended.update(block.column("message")[final].tolist())

    def _check_ends(self, alive: set[int]) -> None:
        lost = self.confirmed - alive - self.settled - self.ended - self.purged
        if lost:
            raise Broken(f"{len(lost)} confirmed messages are gone, the first is {min(lost)}")
        back = alive & (self.settled | self.ended)
        if back:
            raise Broken(f"{len(back)} messages are alive again after their end, the first is {min(back)}")

    def _check_messages(self, log: FileLog, table: Table) -> None:
        places = locations(table)
        positions = table.columns["position"].tolist()
        messages = log.messages([places.get(position, position) for position in positions])
        for position, message in zip(positions, messages, strict=True):
            number = number_of(message.payload)
            if number is None or (message.original or message.position) != position:
                raise Broken(f"message {position} is not what was published: {message}")
            self._same(position, number)
