"""Journals restored from a backup, however that was done: no position is reused, and losses are reported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.demo.postgresql import Server
from penstock.journal import is_url, open_journal
from penstock.journal.contract import GAP, OwnerOptions
from penstock.journal.errors import CommitsLost, DataLoss, JournalMissing, JournalOwned
from penstock.journal.postgresql.journal import OwnedDatabase
from penstock.journal.postgresql.known_commits import NAME, forget
from support.batches import published
from support.commands import penstock_here
from support.databasebackup import copy_files, dump, put_back, put_files_back
from support.owned_databases import add, owning, payloads
from support.postgres import fresh_schema, running_server


@pytest.fixture
def url(postgres: Server) -> str:
    """Return the URL of a journal that does not exist yet."""
    return fresh_schema(postgres)


def schema_of(url: str) -> str:
    return url.partition("?schema=")[2]


def own_with(url: str, folder: Path) -> OwnedDatabase:
    """Own the journal as a broker with its own folder does."""
    owned = open_journal(url, OwnerOptions(notes=str(folder))).own()
    assert isinstance(owned, OwnedDatabase)
    owned.begin()
    return owned


def test_a_restored_database_reuses_no_position(postgres: Server, url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    backup = dump(url)
    with owning(url) as owned:
        for letter in b"bcd":
            add(owned.log, bytes([letter]))
        lost = owned.log.end
    reader = open_journal(url).follow()
    assert reader.latest == lost
    put_back(url, backup)
    with owning(url) as owned:
        assert owned.log.end > lost + GAP
        assert "restarted, promoted or restored" in owned.report[0]
        add(owned.log, b"e")
        assert payloads(owned.log) == [b"a", b"e"]
    reader = open_journal(url).follow()
    for position in range(3, lost + 1):
        with pytest.raises(DataLoss, match=f"positions 2 to {position - 1} are lost: .*a restore"):
            reader.read(position)
    assert [block.block.first for block in reader.read(2)][-1] > lost


def test_a_broker_reports_losses_of_a_restore_until_an_operator_accepts_them(
    postgres: Server, url: str, tmp_path: Path
) -> None:
    owned = own_with(url, tmp_path)
    add(owned.log, b"a")
    owned.close()
    backup = dump(url)
    owned = own_with(url, tmp_path)
    add(owned.log, b"b")
    owned.close()
    put_back(url, backup)
    for _ in range(2):
        with pytest.raises(CommitsLost, match=r"positions 2 to 3 at least.*penstock journal accept-loss 'postgresql"):
            own_with(url, tmp_path)
    with pytest.raises(CommitsLost, match="positions 2 to 3 at least"):
        open_journal(url).own()
    unconfirmed = penstock_here("journal", "accept-loss", url)
    assert (unconfirmed.code, "confirm it with --yes" in unconfirmed.err) == (2, True)
    done = penstock_here("journal", "accept-loss", "--yes", url)
    assert (done.code, "without the events after position 1:" in done.out) == (0, True)
    owned = own_with(url, tmp_path)
    assert owned.log.end > GAP
    refused = penstock_here("journal", "accept-loss", "--yes", url)
    assert (refused.code, "in use by another broker" in refused.err) == (3, True)
    owned.close()


def test_a_dropped_schema_is_not_recreated(postgres: Server, url: str, tmp_path: Path) -> None:
    owned = own_with(url, tmp_path)
    add(owned.log, b"a")
    owned.close()
    postgres.execute(f"drop schema {schema_of(url)} cascade")
    with pytest.raises(JournalMissing, match="has no journal any more"):
        own_with(url, tmp_path)
    assert postgres.execute(f"select count(*) from pg_namespace where nspname = '{schema_of(url)}'") == [(0,)]
    done = penstock_here("journal", "accept-loss", "--yes", url, "--data", str(tmp_path))
    assert (done.code, "has forgotten journal" in done.out) == (0, True)
    own_with(url, tmp_path).close()


def test_a_server_restored_from_a_disk_snapshot_reuses_no_position(tmp_path: Path) -> None:
    with running_server() as server:
        url = fresh_schema(server)
        with owning(url) as owned:
            add(owned.log, b"a")
        server.stop()
        backup = server.folder / "backup"
        copy_files(server, backup)
        server.start()
        with owning(url) as owned:
            add(owned.log, b"b")
            add(owned.log, b"c")
            lost = range(2, owned.log.end)
        server.stop()
        put_files_back(server, backup)
        server.start()
        with owning(url) as owned:
            assert owned.log.end not in lost
            add(owned.log, b"d")
            assert payloads(owned.log) == [b"a", b"d"]
            assert min(extent.first for extent in owned.log.extents()[1:]) not in lost


def test_a_restore_without_lost_events_is_accepted(postgres: Server, url: str, tmp_path: Path) -> None:
    """Restoring a backup that contains every known event is not a loss."""
    owned = own_with(url, tmp_path)
    add(owned.log, b"a")
    owned.close()
    put_back(url, dump(url))
    owned = own_with(url, tmp_path)
    assert payloads(owned.log) == [b"a"]
    owned.close()


def test_a_restored_empty_journal_does_not_begin_at_the_first_position(postgres: Server, url: str) -> None:
    open_journal(url).tools().create()
    backup = dump(url)
    with owning(url) as owned:
        add(owned.log, b"a")
    put_back(url, backup)
    with owning(url) as owned:
        assert owned.log.end > GAP
        add(owned.log, b"b")
        assert payloads(owned.log) == [b"b"]


def of_folder(backup: str, url: str) -> str:
    """Restore the backup to a folder."""
    done = penstock_here("restore", backup, f"{backup}-restored")
    assert done.code == 0, done.err
    return f"{backup}-restored"


def of_copy(backup: str, url: str) -> str:
    """Copy the backup's folder by hand."""
    shutil.copytree(backup, f"{backup}-restored")
    os.unlink(f"{backup}-restored/backup.json")
    done = penstock_here("journal", "accept-loss", "--yes", f"{backup}-restored")
    assert done.code == 0, done.err
    return f"{backup}-restored"


def of_database(backup: str, url: str) -> str:
    """Restore the backup to a database."""
    done = penstock_here("restore", backup, url)
    assert done.code == 0, done.err
    return url


@pytest.mark.parametrize("way", [of_folder, of_copy, of_database])
@pytest.mark.parametrize("before", [0, 2])
def test_a_restored_backup_reuses_no_position(
    tmp_path: Path, url: str, way: Callable[[str, str], str], before: int
) -> None:
    folder = str(tmp_path / "data")
    journal = open_journal(folder)
    owned = journal.own()
    owned.begin()
    for _ in range(before):
        owned.log.append(published(owned.log.end, [b"x"]), owned.log.end, owned.log.epoch)
    backup = str(tmp_path / "backup")
    journal.tools().back_up(backup, lambda size: True)
    for _ in range(3):
        owned.log.append(published(owned.log.end, [b"y"]), owned.log.end, owned.log.epoch)
    lost = owned.log.end
    owned.close()
    restored = open_journal(way(backup, url))
    for _ in range(2):
        again = restored.own()
        again.begin()
        assert again.log.end > lost + GAP
        again.close()
        if not is_url(restored.where):
            done = penstock_here("journal", "repair", "--yes", restored.where)
            assert (done.code, "Nothing had to be changed" in done.out) == (0, True)
    again = restored.own()
    again.begin()
    again.log.append(published(again.log.end, [b"z"]), again.log.end, again.log.epoch)
    again.close()
    assert not restored.tools().verify(lambda size: None).problems
    reader = restored.follow()
    assert sum(reader.counts(1, accept_loss=True).values()) == before + 1
    with pytest.raises(DataLoss):
        reader.read(lost)
    restored.own().close()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    owned = open_journal(str(tmp_path / "data")).own()
    owned.begin()
    done = penstock_here("journal", "accept-loss", "--yes", str(tmp_path / "data"))
    assert (done.code, "in use by another broker" in done.err) == (3, True)
    owned.close()


def test_a_folder_without_a_note_has_no_loss_to_accept(tmp_path: Path, url: str) -> None:
    assert forget(str(tmp_path)) is None
    (tmp_path / NAME).write_text("nonsense")
    assert forget(str(tmp_path)) is None
    assert not (tmp_path / NAME).exists()
    done = penstock_here("journal", "accept-loss", "--yes", url, "--data", str(tmp_path))
    assert (done.code, "knew no journal" in done.out) == (0, True)


def test_an_owned_journal_is_not_restored(url: str) -> None:
    with owning(url), pytest.raises(JournalOwned):
        open_journal(url).tools().accept_loss()
