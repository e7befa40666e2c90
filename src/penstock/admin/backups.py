"""Backups: copies of the journal in folders, made while the broker runs. See ``journal/backup.py``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from penstock.admin.jobs import JobRecord
from penstock.admin.problems import fail
from penstock.admin.resources.common import resource_of
from penstock.admin.resources.operations import Backup
from penstock.admin.times import to_datetime
from penstock.journal import open_journal
from penstock.journal.backup import Manifest, read_manifest
from penstock.journal.errors import LogError

#: Seconds between two updates of a job's progress.
UPDATE_EVERY = 0.2


class Backups:
    """Makes and lists backups."""

    def __init__(self, journal: str, folder: str) -> None:
        """``journal`` is its URL."""
        self._journal = journal
        self.folder = folder

    def check(self, name: str) -> None:
        """Raises ApiProblem if no backup with this name can be made."""
        if self._journal.startswith("memory:"):
            fail("refused", "an ephemeral broker has no journal on disk")
        if os.path.exists(os.path.join(self.folder, name)):
            fail("conflict", f"a backup named {name} exists already", field="body.name")

    def complete(self) -> list[Backup]:
        """The complete backups, by name."""
        if not os.path.isdir(self.folder):
            return []
        found = []
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            manifest = read_manifest(path)
            if manifest is not None:
                found.append(
                    resource_of(Backup, manifest, name=name, folder=path, created_at=to_datetime(manifest.created_at))
                )
        return found

    async def run(self, record: JobRecord, pace: Callable[[], Awaitable[None]]) -> None:
        """Copy the journal in a thread, and update the job's progress."""
        copied = 0
        ended = False

        def progress(size: int) -> bool:
            nonlocal copied
            copied += size
            return not ended and record.status == "running"

        target = os.path.join(self.folder, record.name)
        copying = asyncio.create_task(asyncio.to_thread(self._copy, target, progress))
        try:
            while not copying.done():
                record.done = copied
                await pace()
                await asyncio.wait([copying], timeout=UPDATE_EVERY)
            manifest = copying.result()
            record.done = record.total = manifest.bytes
            record.detail = target
        except LogError as error:
            if record.status == "running":
                fail("refused", str(error))
        finally:
            ended = True

    def _copy(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        return open_journal(self._journal).tools().back_up(target, progress)
