"""Reading a part from archive and journal while files are replaced, the journal drops rows, and stores fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from penstock.flight.calls import Pick, Range, Read
from penstock.journal.views.arrow import MESSAGES
from penstock.spark.archived import history, part
from penstock.spark.archived.contents import ArchiveContents, may_have
from penstock.spark.archived.history import ArchivedHistory
from penstock.spark.archived.part import ArchivedPart
from penstock.spark.archived.row_groups import ArchiveRows
from penstock.spark.errors import DataLoss, Replaced, SourceError, StoreFailed
from penstock.spark.lake.files import short
from penstock.spark.lake.tables import TableFile
from penstock.spark.options import SourceSettings

IDENTITY = "a" * 16
SCHEMA = pa.schema([MESSAGES.field(name) for name in ("position", "payload")])
READ = Read(start=1, stop=101, columns=["payload"], identity=IDENTITY)
#: The broker returns some rows before it fails.
GIVEN = 10


def _settings(**more: object) -> SourceSettings:
    return SourceSettings(archive="/", patience=1_000_000, **more)  # type: ignore[arg-type]


def _file(path: Path, low: int, stop: int) -> TableFile:
    positions = list(range(low, stop))
    times = pa.array([1] * len(positions), pa.timestamp("us", tz="UTC"))
    payloads = pa.array([b"%d" % position for position in positions], pa.binary())
    pq.write_table(pa.table({"position": positions, "payload": payloads, "published_at": times}), path)
    return TableFile(str(path), low, stop - 1, len(positions), {"namespace": "default", "queue": "jobs"})


def _archive(start: int, stop: int, *files: TableFile) -> ArchiveContents:
    return ArchiveContents("/ (table messages)", IDENTITY, Pick(), start, stop, files)


def _listed(monkeypatch: pytest.MonkeyPatch, *archives: ArchiveContents) -> list[int]:
    """Make successive listings return these archives, then the last one. Returns a list with an item per listing."""
    looks: list[int] = []

    def look(_: SourceSettings) -> ArchiveContents:
        looks.append(len(looks))
        return archives[min(len(looks), len(archives)) - 1]

    for module in (part, history):
        monkeypatch.setattr(module, "list_archive", look)
    return looks


def _journal(floor: int) -> Callable[[Read], Iterator[pa.RecordBatch]]:
    """A broker with rows from a position on; earlier ones are lost or skipped."""

    def read(call: Read) -> Iterator[pa.RecordBatch]:
        if call.start < floor and not call.accept_loss:
            raise DataLoss(f"the history begins at position {floor} now")
        positions = list(range(max(call.start, floor), call.stop))
        payloads = pa.array([b"%d" % position for position in positions], pa.binary())
        yield pa.RecordBatch.from_arrays([pa.array(positions, pa.int64()), payloads], schema=SCHEMA)

    return read


def _positions(found: ArchivedPart, journal: Callable[[Read], Iterator[pa.RecordBatch]]) -> list[int]:
    rows = [row for batch in found.batches(journal) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == [b"%d" % row["position"] for row in rows]
    return [row["position"] for row in rows]


def test_the_archive_then_the_broker(tmp_path: Path) -> None:
    files = (_file(tmp_path / "one", 1, 41), _file(tmp_path / "two", 41, 61))
    assert _positions(ArchivedPart(_settings(), READ, files, 61), _journal(61)) == list(range(1, 101))


def test_files_compacted_during_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = TableFile(str(tmp_path / "gone"), 1, 60, 60, {})
    looks = _listed(monkeypatch, _archive(1, 61, gone), _archive(1, 61, _file(tmp_path / "new", 1, 61)))
    assert _positions(ArchivedPart(_settings(), READ, (gone,), 61), _journal(50)) == list(range(1, 101))
    assert len(looks) == 2


@pytest.mark.parametrize("pick", [Pick(), Pick(queue="default/jobs")])
def test_archived_rows_after_a_batch_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pick: Pick) -> None:
    files = (_file(tmp_path / "one", 1, 41), _file(tmp_path / "two", 41, 61))
    _listed(monkeypatch, _archive(1, 61, *files))
    found = ArchivedHistory(_settings(), pick)
    status = Range(identity=IDENTITY, earliest=56, latest=101, version="")
    assert [found.behind(status, start).rows for start in (1, 1, 11, 41, 50, 56)] == [55, 55, 45, 15, 6, 0]
    assert found.behind(status, 1).seconds > 1e9  # its messages are of 1970
    assert found.behind(status, 56).seconds == 0


def test_a_missing_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = TableFile(str(tmp_path / "gone"), 1, 60, 60, {})
    _listed(monkeypatch, _archive(1, 61, gone))
    with pytest.raises(DataLoss, match=r"a file of the archive / is missing: .*gone"):
        _positions(ArchivedPart(_settings(), READ, (gone,), 61), _journal(50))


def test_the_journal_drops_rows_during_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _listed(monkeypatch, _archive(1, 71, _file(tmp_path / "file", 1, 71)))
    calls: list[int] = []

    def trimmed(call: Read) -> Iterator[pa.RecordBatch]:
        calls.append(call.start)
        if len(calls) == 1:
            yield from (batch.slice(0, GIVEN) for batch in _journal(1)(call))
        yield from _journal(65)(call)

    assert _positions(ArchivedPart(_settings(), READ, (), 0), trimmed) == list(range(1, 101))
    assert calls == [1, 71]


@pytest.mark.parametrize("fail", [True, False])
def test_rows_in_neither_archive_nor_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: bool) -> None:
    files = (_file(tmp_path / "file", 1, 21),)
    _listed(monkeypatch, _archive(1, 21, *files))
    found = ArchivedPart(_settings(fail_on_data_loss=fail), READ, files, 21)
    if fail:
        with pytest.raises(DataLoss, match="the history begins at position 50 now"):
            _positions(found, _journal(50))
    else:
        assert _positions(found, _journal(50)) == [*range(1, 21), *range(50, 101)]


def test_an_archive_that_cannot_be_listed_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "PAUSE", 0.01)
    found, failures = _archive(1, 71, _file(tmp_path / "file", 1, 71)), [StoreFailed("away"), StoreFailed("away")]

    def look(_: SourceSettings) -> ArchiveContents:
        if failures:
            raise failures.pop()
        return found

    monkeypatch.setattr(part, "list_archive", look)
    assert _positions(ArchivedPart(_settings(), READ, (), 0), _journal(65)) == list(range(1, 101))


def test_another_journal_is_not_looked_up_in_the_archive() -> None:
    def replaced(_: Read) -> Iterator[pa.RecordBatch]:
        raise Replaced("another one")
        yield

    with pytest.raises(Replaced, match="another one"):
        _positions(ArchivedPart(_settings(), READ, (), 0), replaced)


def test_a_store_that_fails_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (_file(tmp_path / "file", 1, 101),)
    _listed(monkeypatch, _archive(1, 101, *files))
    monkeypatch.setattr(part, "PAUSE", 0.01)
    load, failures = ArchiveRows.load, [OSError("slow down"), OSError("slow down")]

    def failing(*arguments: object) -> pa.Table:
        if failures:
            raise failures.pop()
        return load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveRows, "load", failing)
    assert _positions(ArchivedPart(_settings(), READ, files, 101), _journal(101)) == list(range(1, 101))
    failures.append(PermissionError("no right"))
    with pytest.raises(PermissionError):
        _positions(ArchivedPart(_settings(), READ, files, 101), _journal(101))


def _status(earliest: int) -> Range:
    return Range(identity=IDENTITY, earliest=earliest, latest=201, version="1")


def test_a_batch_about_to_be_archived_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "GAP_PAUSE", 0.01)
    looks = _listed(monkeypatch, _archive(1, 50), _archive(1, 50), _archive(1, 90))
    found = ArchivedHistory(_settings(), Pick())
    assert found.reach(_status(80), 1, 201) == 90
    assert len(looks) == 3
    assert found.reach(_status(85), 60, 201) == 90
    assert len(looks) == 3


def test_files_removed_while_a_batch_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = TableFile(str(tmp_path / "gone"), 1, 60, 60, {})
    _listed(monkeypatch, _archive(1, 61, gone), _archive(1, 61, _file(tmp_path / "new", 1, 61)))
    found = ArchivedHistory(_settings(), Pick())
    assert found.advance(_status(50), 1, 61, 7, 0).rows == 7


def test_queue_names_truncated_in_folders(tmp_path: Path) -> None:
    name = "x" * 255
    file = _file(tmp_path / "file", 1, 11)
    cut = TableFile(file.path, 1, 10, 10, {"namespace": "default", "queue": f"{name[:40]}~{'0' * 32}"})
    read = Read(start=1, stop=11, columns=["queue"], identity=IDENTITY)
    with pytest.raises(SourceError, match="it contains only a part of the name"):
        list(ArchivedPart(_settings(), read, (cut,), 11).batches(_journal(11)))
    for pattern in ("default/xx*", "*/*y", f"default/{name}"):
        with pytest.raises(SourceError, match="it contains only a part of the name"):
            may_have(cut, Pick(pattern=pattern))
    assert may_have(cut, Pick(pattern="default/*"))
    assert not may_have(cut, Pick(pattern="default/y*"))
    whole = TableFile(file.path, 1, 10, 10, {"namespace": "default", "queue": short("queue", name)})
    named = replace(read, queue=f"default/{name}")
    found = list(ArchivedPart(_settings(), named, (whole,), 11).batches(_journal(11)))
    assert [row["queue"] for batch in found for row in batch.to_pylist()] == [name] * 10
