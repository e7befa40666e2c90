"""Copying a journal between folders and databases: byte for byte, verified, and repeatable after interruptions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.demo.postgresql import Server
from penstock.journal import Journal, open_journal
from penstock.journal.errors import JournalDamaged, JournalOwned, JournalRefused
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.folder import take_lock
from penstock.journal.files.follower import JournalReader
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.transfer import Copied, Progress, copy_journal
from support.brokers import wait_for
from support.commands import COMMAND, environment, penstock_here
from support.databaseproxy import database_proxy
from support.folders import Life

#: The files that a copied folder keeps unchanged.
SAME = ("*.seg", "*.ckpt", "readers.json", "tokens.json")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with some segments, two checkpoints, readers and tokens, after its broker was stopped."""
    life = Life(tmp_path_factory.mktemp("lived") / "data", 7).run(400)
    life.checkpoint()
    life.run(200)
    life.stop()
    (life.folder / "readers.json").write_bytes(b'[{"reader": "etl"}]')
    (life.folder / "tokens.json").write_bytes(b"[]")
    return life.folder


@contextmanager
def silent(title: str, total: int) -> Iterator[Progress]:
    yield lambda size: None


def copied(source: Journal, target: Journal) -> Copied:
    return copy_journal(source.transfer_source(), target.transfer_target(), silent)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for pattern in SAME for path in folder.glob(pattern)}


class Cut(Exception):
    """The copy is interrupted here."""


def cutting(after: int) -> AbstractContextManager[Progress] | object:
    """Return a progress that interrupts the copy after this percentage."""

    @contextmanager
    def measure(title: str, total: int) -> Iterator[Progress]:
        done = 0

        def progress(size: int) -> None:
            nonlocal done
            done += size
            if title == "copying" and done > after * total // 100:
                raise Cut

        yield progress

    return measure


def folder_of(path: Path) -> Journal:
    return open_journal(str(path))


class TestThereAndBack:
    def test_every_file_is_unchanged(self, lived: Path, database: str, tmp_path: Path) -> None:
        there = copied(folder_of(lived), open_journal(database))
        assert there.extents == len(list(lived.glob("*.seg"))) > 3
        back = copied(open_journal(database), folder_of(tmp_path / "back"))
        assert (back.facts.identity, back.facts.head) == (there.facts.identity, there.facts.head)
        assert contents(tmp_path / "back") == contents(lived)
        assert not (tmp_path / "back.partial").exists()
        verdict = folder_of(tmp_path / "back").tools().verify(lambda size: None)
        assert (list(verdict.problems), verdict.startable) == ([], True)

    def test_the_database_reads_like_the_folder(self, lived: Path, database: str) -> None:
        copied(folder_of(lived), open_journal(database))
        old, new = JournalReader(lived), open_journal(database).follow()
        assert (new.identity, new.earliest, new.latest) == (old.identity, old.earliest, old.latest)
        for mine, theirs in zip(old.read(old.earliest), new.read(new.earliest), strict=True):
            assert bytes(mine.block.view) == bytes(theirs.block.view)
        assert new.catalogue().names == old.catalogue().names
        there, here = new.checkpoint(new.latest), old.checkpoint(old.latest)
        assert there is not None
        assert here is not None
        assert (there.position, there.meta) == (here.position, here.meta)
        new.close()

    def test_a_copy_keeps_the_losses_of_a_repair(self, lived: Path, database: str, tmp_path: Path) -> None:
        damaged = tmp_path / "damaged"
        shutil.copytree(lived, damaged)
        segment = sorted(damaged.glob("*.seg"))[1]
        raw = bytearray(segment.read_bytes())
        raw[5000] ^= 1
        segment.write_bytes(raw)
        with pytest.raises(JournalDamaged):
            copied(folder_of(damaged), open_journal(database))
        with folder_of(damaged).tools().repair(lambda size: None) as repair:
            repair.carry_out(lambda size: None)
            [(low, high)] = repair.lost
        copied(folder_of(damaged), open_journal(f"{database}?schema=repaired"))
        reader = open_journal(f"{database}?schema=repaired").follow()
        losses = reader.losses(low, high)
        reader.close()
        assert losses[0].lost[1] == high
        assert "a repair could not save them" in str(losses[0])
        copied(open_journal(f"{database}?schema=repaired"), folder_of(tmp_path / "back"))
        assert contents(tmp_path / "back") == contents(damaged)
        assert JournalReader(tmp_path / "back").losses(low, high)[0].lost == losses[0].lost


class TestInterrupted:
    @pytest.mark.parametrize("share", [0, 30, 90])
    def test_into_a_database(self, lived: Path, database: str, tmp_path: Path, share: int) -> None:
        source, target = folder_of(lived), open_journal(database)
        with pytest.raises(Cut):
            copy_journal(source.transfer_source(), target.transfer_target(), cutting(share))  # type: ignore[arg-type]
        with pytest.raises(JournalOwned, match="an unfinished copy of journal"):
            target.own()
        copied(source, target)
        copied(target, folder_of(tmp_path / "back"))
        assert contents(tmp_path / "back") == contents(lived)

    @pytest.mark.parametrize("share", [0, 30, 90])
    def test_into_a_folder(self, lived: Path, tmp_path: Path, share: int) -> None:
        source, target = folder_of(lived), folder_of(tmp_path / "new")
        with pytest.raises(Cut):
            copy_journal(source.transfer_source(), target.transfer_target(), cutting(share))  # type: ignore[arg-type]
        assert not (tmp_path / "new").exists()
        copied(source, target)
        assert contents(tmp_path / "new") == contents(lived)


class TestRefused:
    def test_a_folder_that_is_not_empty(self, lived: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(JournalRefused, match="is not empty: a journal is copied into a new folder"):
            copied(folder_of(lived), folder_of(tmp_path))

    def test_a_database_with_a_journal(self, lived: Path, database: str) -> None:
        copied(folder_of(lived), open_journal(database))
        with pytest.raises(JournalRefused, match="is not empty: a journal is copied into an empty schema"):
            copied(folder_of(lived), open_journal(database))

    def test_a_folder_of_a_running_broker(self, lived: Path, tmp_path: Path) -> None:
        lock = take_lock(RealDisk(lived))
        try:
            with pytest.raises(JournalRefused, match="is in use by another broker"):
                copied(folder_of(lived), folder_of(tmp_path / "new"))
        finally:
            lock.close()

    def test_a_database_of_a_running_broker(self, lived: Path, database: str, tmp_path: Path) -> None:
        copied(folder_of(lived), open_journal(database))
        owner = PostgresDatabase(parse_address(database))
        owner.claim("a broker", 60, 0)
        for source, target in (
            (open_journal(database), folder_of(tmp_path / "new")),
            (folder_of(lived), open_journal(database)),
        ):
            with pytest.raises(JournalOwned, match="in use by another broker: a broker"):
                copied(source, target)
        owner.close()

    def test_a_folder_without_a_journal(self, database: str, tmp_path: Path) -> None:
        with pytest.raises(JournalRefused, match="is not a journal"):
            copied(folder_of(tmp_path), open_journal(database))


class TestByTheCommand:
    def test_init_creates_a_journal_once(self, database: str) -> None:
        where = database.replace(f":{urlsplit(database).password}@", "@")
        made = penstock_here("journal", "init", f"{database}?schema=orders")
        assert made == (0, f"{where}?schema=orders has a new journal.\n", "")
        facts = open_journal(f"{database}?schema=orders").tools().info()
        again = penstock_here("journal", "init", f"{database}?schema=orders", "--json")
        assert (again.code, again.json) == (0, [{"journal": f"{where}?schema=orders", "made": False}])
        assert open_journal(f"{database}?schema=orders").tools().info() == facts

    @pytest.mark.parametrize("to_database", [True, False])
    def test_a_killed_copy_can_be_resumed(
        self, lived: Path, postgres: Server, database: str, tmp_path: Path, to_database: bool
    ) -> None:
        if not to_database:
            copied(folder_of(lived), open_journal(database))
        target = tmp_path / "copy"
        ends = (str(lived), database) if to_database else (database, str(target))
        with database_proxy(postgres.port) as proxy:
            through = [proxy.url(end) if end == database else end for end in ends]
            proxy.hold_at_statement(40 if to_database else 12)
            running = subprocess.Popen([*COMMAND, "journal", "copy", *through], env=environment())
            wait_for(lambda: proxy.held, "the copy did not get that far", 120)
            running.kill()
            running.wait()
        assert not target.exists()
        done = penstock_here("journal", "copy", *ends)
        assert (done.code, "has the journal now" in done.out) == (0, True), done.err
        if to_database:
            copied(open_journal(database), folder_of(target))
        assert contents(target) == contents(lived)

    def test_a_backup_is_restored_into_a_database(self, lived: Path, database: str, tmp_path: Path) -> None:
        copied(folder_of(lived), open_journal(database))
        backup = tmp_path / "backup"
        open_journal(database).tools().back_up(str(backup), lambda size: True)
        restored = f"{database}?schema=restored"
        done = penstock_here("restore", backup, restored)
        assert (done.code, "start a broker on it: penstock serve --journal postgresql://" in done.out) == (0, True)
        assert str(urlsplit(database).password) not in done.out
        old, new = JournalReader(lived), open_journal(restored).follow()
        assert new.identity == old.identity
        for mine, theirs in zip(old.read(old.earliest), new.read(new.earliest), strict=True):
            assert bytes(mine.block.view) == bytes(theirs.block.view)
        new.close()
        (backup / "tail").write_bytes(b"")
        refused = penstock_here("restore", backup, f"{database}?schema=other")
        assert (refused.code, "is not whole: tail has 0 bytes where" in refused.err) == (3, True)
