"""Data folders as brokers leave them: random clients through the engine, into real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.core.broker import Broker
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk, RealFile
from penstock.schema import Kind
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.journals import open_folder
from support.workload import Workload

#: Small segments, of a few hundred events each.
SMALL = OwnerOptions(extent_bytes=20_000, reserve=4096)


class QuickDisk(RealDisk):
    """A disk without fsync, because these tests are not about power failures."""

    def create(self, name: str) -> RealFile:
        return QuickFile(super().create(name)._fd)

    def open(self, name: str) -> RealFile:
        return QuickFile(super().open(name)._fd)

    def sync(self) -> None:
        pass


class QuickFile(RealFile):
    """A file without fsync."""

    def sync(self) -> None:
        pass


class Life:
    """A broker on a folder, and its published messages by position, as the view of messages must show them."""

    def __init__(self, folder: Path, seed: int = 1, options: OwnerOptions = SMALL, *, age: int = 0) -> None:
        self.folder = folder
        self.options = options
        self.retention = Retention(age=age)
        self.workload = Workload(seed, Broker())
        self.published: dict[int, dict[str, Any]] = {}
        self.opened = self._open()
        self.workload = Workload(seed, self.opened.engine.broker)

    def _open(self) -> Opened:
        return open_folder(QuickDisk(self.folder), self.workload.now, self.options, self.retention)

    def run(self, steps: int) -> Life:
        """Let the clients run some commands, and commit now and then."""
        for step in range(steps):
            self.workload.step()
            if step % 3 == 0:
                self.commit()
        self.commit()
        return self

    def commit(self) -> None:
        """Write staged events, and record the published messages."""
        engine = self.opened.engine
        staged = engine.stage(self.workload.now)
        for each in staged:
            self._note(each.batch)
        engine.write(staged)
        engine.advance()
        engine.released()

    def checkpoint(self) -> None:
        self.opened.upkeep.checkpoint(self.workload.now)

    def stop(self) -> None:
        """A clean stop."""
        while self.opened.engine.broker.log.staged:
            self.commit()
        self.checkpoint()
        self.opened.engine.log.close()

    def kill(self) -> None:
        """End like a killed process: files stay as they are, the lock is released."""
        log: Any = self.opened.engine.log
        log._close_files()

    def restart(self) -> None:
        self.opened = self._open()
        self.workload.reconnect(self.opened.engine.broker)

    def _note(self, batch: Any) -> None:
        queues = self.opened.engine.broker.queues
        message = 0
        for row, kind in enumerate(batch.kinds):
            if kind not in (Kind.PUBLISHED, Kind.CARRIED):
                continue
            if kind == Kind.PUBLISHED:
                values = {name: column[message] for name, column in batch.columns.items() if len(column) > message}
                known = queues.get(batch.queues[row])
                self.published[batch.first + row] = {
                    "at": batch.at[row],
                    "queue": batch.queues[row],
                    "name": known.name if known else None,
                    "source": batch.sources[batch.source[row]],
                    **{name: values[name] for name in MESSAGE_COLUMNS if name in values},
                }
            message += 1


MESSAGE_COLUMNS = (
    "payload", "expires_at", "priority", "retries", "correlation_id", "request_id", "asked_id", "source_info",
)  # fmt: skip

WEAK = OwnerOptions(durability=Durability.OS, extent_bytes=20_000, reserve=4096)
