"""Backups: copies of the journal, made while the broker runs, as folders. See ``journal/backup.py``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from penstock.admin.jobs import JobRecord
from penstock.admin.problems import fail
from penstock.admin.resources.operations import Backup
from penstock.admin.times import moment
from penstock.journal import open_journal
from penstock.journal.backup import Manifest, read_manifest
from penstock.journal.errors import LogError

#: Seconds between two looks at how far it is.
LOOK_EVERY = 0.2


class Backups:
    """Makes and lists them."""

    def __init__(self, journal: str, folder: str) -> None:
        """``journal`` is its URL; of one in memory there are no backups."""
        self._journal = journal
        self.folder = folder

    def check(self, name: str) -> None:
        """Raises ApiProblem if a backup of this name can't be made."""
        if self._journal.startswith("memory:"):
            fail("refused", "an ephemeral broker has no journal on disk to copy")
        if os.path.exists(os.path.join(self.folder, name)):
            fail("conflict", f"there is a backup {name} already", field="body.name")

    def listed(self) -> list[Backup]:
        """Those that are complete, by name."""
        if not os.path.isdir(self.folder):
            return []
        found = []
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            manifest = read_manifest(path)
            if manifest is not None:
                found.append(
                    Backup(
                        name=name,
                        folder=path,
                        created_at=moment(manifest.created_at),
                        position=manifest.position,
                        bytes=manifest.bytes,
                    )
                )
        return found

    async def run(self, record: JobRecord, pace: Callable[[], Awaitable[None]]) -> None:
        """Make one, in a thread."""
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
                await asyncio.wait([copying], timeout=LOOK_EVERY)
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
