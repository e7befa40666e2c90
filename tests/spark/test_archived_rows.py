"""Rows of an archive's files by position: splitting, counting, and the boundary between archive and journal."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.flight.calls import Advanced, Pick, Range
from penstock.journal.views.arrow import MESSAGES
from penstock.spark.archived import measures
from penstock.spark.archived.contents import ArchiveContents
from penstock.spark.archived.history import check, gap, missing
from penstock.spark.archived.row_groups import ArchiveRows
from penstock.spark.errors import BadOption, Replaced
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import TableFile

ALL = Pick()
WHOLE = (1, 10_001)
SCHEMA = pa.schema([MESSAGES.field(name) for name in ("queue", "payload", "position", "source_info")])


def _write(path: Path, positions: list[int], group: int) -> TableFile:
    times = pa.array([position * 1000 for position in positions], pa.timestamp("us"))
    payloads = [b"x" * (position % 10) for position in positions]
    table = pa.table({"position": positions, "payload": pa.array(payloads, pa.binary()), "published_at": times})
    pq.write_table(table, path, row_group_size=group)
    return TableFile(
        str(path), min(positions), max(positions), len(positions), {"namespace": "default", "queue": path.stem}
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableFile, ...]:
    """10,000 positions in three queues, one of them out of order, two of them compacted."""
    folder = tmp_path_factory.mktemp("archive")
    order = random.Random(1)
    made: list[TableFile] = []
    for number, group in enumerate((100, 700, 10_000)):
        positions = list(range(1 + number, 10_001, 3))
        if number:
            order.shuffle(positions)
        made.append(_write(folder / f"q{number}.parquet", positions, group))
    return tuple(made)


@pytest.fixture
def rows() -> ArchiveRows:
    return ArchiveRows(Store("/"))


def _positions(rows: ArchiveRows, files: tuple[TableFile, ...], span: tuple[int, int], enough: int) -> list[int]:
    tables = rows.read(rows.groups(files, *span), span, ALL, SCHEMA, enough=enough)
    return [position for table in tables for position in table.column("position").to_pylist()]


@pytest.mark.parametrize("enough", [0, 2000, 2**30])
@pytest.mark.parametrize("span", [WHOLE, (17, 18), (500, 7777)])
def test_rows_are_ordered_by_position(
    rows: ArchiveRows, files: tuple[TableFile, ...], span: tuple[int, int], enough: int
) -> None:
    assert _positions(rows, files, span, enough) == list(range(*span))


def test_missing_columns_are_an_error_or_null(rows: ArchiveRows, files: tuple[TableFile, ...]) -> None:
    found = pa.concat_tables(rows.read(rows.groups(files, 4, 7), (4, 7), ALL, SCHEMA))
    assert found.schema == SCHEMA
    assert found.to_pylist() == [
        {"queue": f"q{at}", "payload": b"x" * (4 + at), "position": 4 + at, "source_info": None} for at in range(3)
    ]


def test_files_with_several_queues_are_filtered_row_by_row(rows: ArchiveRows, tmp_path: Path) -> None:
    names = ["jobs", "other", "jobs", "more"]
    columns = {"position": [1, 2, 3, 4], "namespace": ["default"] * 4, "queue": names}
    pq.write_table(pa.table({**columns, "published_at": pa.array([1] * 4, pa.timestamp("us"))}), tmp_path / "file")
    file = TableFile(str(tmp_path / "file"), 1, 4, 4, {"date": "2026-01-01"})
    schema = pa.schema([MESSAGES.field("position")])
    for pick, wanted in ((Pick(queue="default/jobs"), [1, 3]), (Pick(pattern="d*/?o*"), [1, 3, 4])):
        found = pa.concat_tables(rows.read(rows.groups([file], 1, 5), (1, 5), pick, schema))
        assert found.column("position").to_pylist() == wanted


def test_parts_are_of_similar_size(rows: ArchiveRows, files: tuple[TableFile, ...]) -> None:
    groups = rows.groups(files, *WHOLE)
    cuts = measures.cuts(groups, *WHOLE, partitions=4, size=2**30)
    assert len(cuts) == 3
    assert all(abs(cut - 2500 * (at + 1)) < 250 for at, cut in enumerate(cuts))
    total = sum(group.size for group in groups)
    assert len(measures.cuts(groups, *WHOLE, partitions=1, size=total // 10)) in (9, 10)
    assert measures.cuts(rows.groups(files, 17, 18), 17, 18, partitions=8, size=2**30) == []
    assert measures.cuts([], *WHOLE, partitions=2, size=2**30) == []


@pytest.mark.parametrize(
    ("max_rows", "max_bytes", "wanted"),
    [
        (0, 0, Advanced(stop=10_001, rows=10_000, bytes=0)),
        (7, 0, Advanced(stop=8, rows=7, bytes=0)),
        (0, 45, Advanced(stop=11, rows=10, bytes=45)),
        (3, 45, Advanced(stop=4, rows=3, bytes=6)),
        (0, 10**9, Advanced(stop=10_001, rows=10_000, bytes=45_000)),
        (10_000, 0, Advanced(stop=10_001, rows=10_000, bytes=0)),
    ],
)
def test_the_end_of_a_batch(
    rows: ArchiveRows, files: tuple[TableFile, ...], max_rows: int, max_bytes: int, wanted: Advanced
) -> None:
    groups = rows.groups(files, *WHOLE)
    assert measures.advance(rows, groups, WHOLE, ALL, max_rows, max_bytes) == wanted


def test_a_batch_has_at_least_one_row(rows: ArchiveRows, files: tuple[TableFile, ...]) -> None:
    span = (9, 20)
    found = measures.advance(rows, rows.groups(files, *span), span, ALL, 0, 5)
    assert found == Advanced(stop=10, rows=1, bytes=9)
    empty = measures.advance(rows, [], span, ALL, 0, 5)
    assert empty == Advanced(stop=20, rows=0, bytes=0)


def test_the_position_of_a_time(rows: ArchiveRows, files: tuple[TableFile, ...]) -> None:
    assert measures.locate(rows, files, 10_001, ALL, 5_000_000) == 5000
    assert measures.locate(rows, files, 10_001, ALL, 0) == 1
    assert measures.locate(rows, files, 10_001, ALL, 4_999_001) == 5000
    assert measures.locate(rows, files, 10_001, ALL, 10_000_001) is None
    assert measures.locate(rows, files, 4000, ALL, 5_000_000) is None


def _archive(start: int, stop: int, of: Pick = ALL) -> ArchiveContents:
    return ArchiveContents("/lake (table messages)", "a" * 16, of, start, stop, ())


def _status(earliest: int, latest: int) -> Range:
    return Range(identity="a" * 16, earliest=earliest, latest=latest, version="1")


@pytest.mark.parametrize(
    ("archive", "earliest", "span", "wanted"),
    [
        ((1, 100), 50, (1, 200), []),
        ((1, 100), 100, (1, 200), []),
        ((1, 100), 120, (1, 200), [(100, 120)]),
        ((1, 100), 120, (1, 100), []),
        ((1, 100), 120, (110, 200), [(110, 120)]),
        ((20, 100), 50, (1, 200), [(1, 20)]),
        ((20, 100), 50, (20, 200), []),
        ((20, 100), 120, (1, 110), [(1, 20), (100, 110)]),
        ((60, 100), 50, (10, 200), [(10, 50)]),
        ((1, 1), 50, (10, 200), [(10, 50)]),
    ],
)
def test_rows_in_neither_archive_nor_journal(
    archive: tuple[int, int], earliest: int, span: tuple[int, int], wanted: list[tuple[int, int]]
) -> None:
    assert missing(_archive(*archive), _status(earliest, 200), *span) == wanted


def test_lost_positions_are_named() -> None:
    assert gap(_archive(1, 100), _status(120, 200), 100, 120) == (
        "positions 100 to 119 are lost: the archive /lake (table messages) has positions 1 to 99, "
        "and the journal begins at position 120 now"
    )


@pytest.mark.parametrize(
    ("of", "pick", "covered"),
    [
        (ALL, Pick(queue="shop/orders"), True),
        (ALL, Pick(pattern="a/*"), True),
        (Pick(queue="shop/orders"), Pick(queue="shop/orders"), True),
        (Pick(queue="shop/orders"), Pick(queue="shop/carts"), False),
        (Pick(queue="shop/orders"), ALL, False),
        (Pick(pattern="shop/*"), Pick(queue="shop/orders"), True),
        (Pick(pattern="shop/o*"), Pick(pattern="shop/o*"), True),
        (Pick(pattern="shop/*"), Pick(pattern="shop/o*"), True),
        (Pick(pattern="shop/*"), Pick(pattern="*/o*"), False),
        (Pick(pattern="shop/?"), Pick(pattern="shop/*"), False),
    ],
)
def test_an_archive_must_contain_the_queues(of: Pick, pick: Pick, covered: bool) -> None:
    archive = _archive(1, 100, of)
    if covered:
        assert check(archive, "a" * 16, pick) is archive
        return
    with pytest.raises(BadOption, match=r"has the queues .*, and this query reads"):
        check(archive, "a" * 16, pick)


def test_an_archive_of_another_journal_is_refused() -> None:
    with pytest.raises(Replaced, match=f"is of journal {'a' * 16}, and the broker's is {'b' * 16}"):
        check(_archive(1, 100), "b" * 16, ALL)
