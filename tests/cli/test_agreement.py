"""``penstock up --demo`` compares tables while they are being written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.demo.agreement import sample


def test_a_half_written_file_before_the_first_commit_has_no_rows(tmp_path: Path) -> None:
    folder = tmp_path / "messages" / "date=2026-11-16"
    folder.mkdir(parents=True)
    (folder / "half.parquet").write_bytes(b"")
    assert sample(tmp_path, "a") == []
    row = {"position": 1, "published_at": 1, "protocol": "phpmq", "namespace": "default", "queue": "jobs"}
    pq.write_table(pa.Table.from_pylist([{**row, "payload": b'{"run": "a"}'}]), folder / "whole.parquet")
    assert [each["position"] for each in sample(tmp_path, "a")] == [1]
