"""The rows behind each figure of the report, as SQL that DuckDB runs on the files of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from penstock.spark.pipelines.insight.minutes import QueueKey
from penstock.spark.pipelines.insight.tables import file_name, step_column


class FigureQueries:
    """Queries over a report's period. Times are in microseconds; the last step is included."""

    def __init__(self, folder: Path, first: int, last: int) -> None:
        self._folder = folder
        self._first, self._last = first, last

    def rows(self, table: str, columns: Sequence[str], queue: QueueKey | None = None) -> str:
        """The rows of a queue, or those of all queues in which one of the columns is neither null nor 0."""
        names = [] if queue is not None else ["namespace", "queue"]
        shown = ", ".join([*names, step_column(table), *columns])
        wanted = [f"coalesce({', '.join(f'nullif({name}, 0)' for name in columns)}) IS NOT NULL"]
        if queue is not None:
            wanted = [f"namespace = {_text(queue.namespace)}", f"queue = {_text(queue.queue)}"]
        return self._select(shown, table, wanted, f"ORDER BY {', '.join([step_column(table), *names])}")

    def ends(self, column: str) -> str:
        """The last value of a column of ``queues``, for each queue."""
        shown = f"namespace, queue, max(minute) AS minute, arg_max({column}, minute) AS {column}"
        return self._select(shown, "queues", [], "GROUP BY namespace, queue ORDER BY namespace, queue")

    def sums(self, table: str, columns: Sequence[str], by: Sequence[str]) -> str:
        """Sums of columns, grouped by others."""
        shown = ", ".join([*by, *(f"sum({name}) AS {name}" for name in columns)])
        return self._select(shown, table, [], f"GROUP BY {', '.join(by)} ORDER BY {', '.join(by)}")

    def _select(self, shown: str, table: str, wanted: Sequence[str], end: str) -> str:
        files = _text(f"{self._folder}/{table}/*/*/{file_name(table)}")
        column = step_column(table)
        times = f"{column} BETWEEN {_moment(self._first)} AND {_moment(self._last)}"
        return f"SELECT {shown}\nFROM {files}\nWHERE {' AND '.join([*wanted, times])}\n{end};"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _moment(microseconds: int) -> str:
    return f"TIMESTAMPTZ '{datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(sep=' ')}'"
