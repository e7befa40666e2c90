"""Each batch is committed to the lake exactly once, with every step interrupted. Without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.lake import batches as lake
from penstock.spark.lake import disk
from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store


class Killed(BaseException):
    """Simulates a kill: no code may catch it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int, modules: tuple[Any, ...]) -> Callable[[], int]:
    """Fail the nth change of the file system from now on, and all later ones."""
    count = 0

    def guard(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                raise Killed
            return real(*arguments, **more)

        return call

    monkeypatch.setattr(os, "replace", guard(os.replace))
    monkeypatch.setattr(os, "rename", guard(os.rename))
    monkeypatch.setattr(Store, "move", guard(Store.move))
    monkeypatch.setattr(Store, "remove", guard(Store.remove))
    monkeypatch.setattr(Path, "unlink", guard(Path.unlink))
    for module in modules:
        monkeypatch.setattr(module, "remove", guard(disk.remove))
    return lambda: count


def new_lake(folder: Path) -> Lake:
    found = Lake(folder, "test")
    found.prepare()
    found.checkpoint.mkdir(exist_ok=True)
    (found.checkpoint / "metadata").write_text(json.dumps({"id": "query-one"}))
    return found


def put(found: Lake, batch: int) -> bool:
    """Commit a batch of two files in two folders."""
    attempt = found.begin(batch)
    if attempt is None:
        return False
    moves = []
    for part in range(2):
        staged = attempt / f"{part}.txt"
        staged.write_text(f"{batch}/{part}")
        moves.append((staged, found.root / "table" / f"part={part}" / f"{batch}.txt"))
    found.decide(batch, moves, 100 * (batch + 1), {"batch": batch})
    return True


def contents(found: Lake) -> list[str]:
    return sorted(path.read_text() for path in (found.root / "table").rglob("*.txt"))


def test_a_batch_interrupted_at_any_step_and_repeated_is_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 100):
        found = new_lake(tmp_path / str(step))
        put(found, 0)
        with monkeypatch.context() as patched:
            steps = killed_at(patched, step, (lake,))
            with suppress(Killed):
                put(found, 1)
            interrupted = steps() >= step
        again = Lake(found.root, "test")
        again.prepare()
        put(again, 1)
        assert contents(again) == ["0/0", "0/1", "1/0", "1/1"]
        assert list(again.staging.iterdir()) == []
        assert not put(again, 0)
        assert not put(again, 1)
        if not interrupted:
            break
    assert step > 5


def test_a_batch_that_was_compacted_away_does_not_come_back(tmp_path: Path) -> None:
    found = new_lake(tmp_path)
    put(found, 0)
    for path in (tmp_path / "table").rglob("*.txt"):
        path.unlink()
    assert not put(found, 0)
    assert contents(found) == []


def test_without_its_checkpoint_a_lake_continues_after_its_last_batch(tmp_path: Path) -> None:
    found = new_lake(tmp_path)
    assert found.resume_at() is None
    put(found, 0)
    assert found.resume_at() is None
    (found.checkpoint / "metadata").unlink()
    assert found.resume_at() == 100
    (found.checkpoint / "metadata").write_text(json.dumps({"id": "query-two"}))
    assert put(found, 0)  # a new query numbers its batches from 0
    assert found.resume_at() is None


def test_a_second_pipeline_of_the_same_name_is_rejected(tmp_path: Path) -> None:
    with Lake(tmp_path, "test").locked():
        with Lake(tmp_path, "other").locked():
            pass
        with pytest.raises(LakeError, match="another `test` is running"), Lake(tmp_path, "test").locked():
            pass


def test_invalid_lakes(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="a folder that renames files at once"):
        Lake("s3://bucket/lake", "test")
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="can't be written to"):
        Lake(tmp_path / "file", "test").prepare()
    found = new_lake(tmp_path / "lake")
    (found.hidden / "ledger.json").write_text("{")
    with pytest.raises(LakeError, match=r"ledger\.json can't be understood"):
        found.last()


def test_an_unknown_table_is_rejected(tmp_path: Path) -> None:
    found = Lake(tmp_path, "test")
    found.refuse_unknown("new", [tmp_path / "new"])
    (tmp_path / "old" / "date=2026-01-01").mkdir(parents=True)
    (tmp_path / "old" / "date=2026-01-01" / "a.parquet").touch()
    with pytest.raises(LakeError, match="table old exists, but the record of its batches is missing"):
        found.refuse_unknown("old", [tmp_path / "old"])


def test_a_decided_batch_is_finished_with_tables_beside_the_lake(tmp_path: Path) -> None:
    """Like an archive's tables: files are moved and staging is emptied, twice in a row."""
    found = Lake(tmp_path, "test", Store(tmp_path))
    found.prepare()
    staged = tmp_path / found.staged("one") / "a.parquet"
    staged.parent.mkdir(parents=True)
    staged.write_text("rows")
    found._write(BatchMark("query", 0, [(f"{found.staged('one')}/a.parquet", "table/a.parquet")], 1, False, {}))
    Lake(tmp_path, "test", Store(tmp_path)).prepare()
    assert (tmp_path / "table" / "a.parquet").read_text() == "rows"
