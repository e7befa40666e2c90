"""Rows of an answer as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.sql.database import BadQuery

#: Numbers that every reader of JSON keeps as they are.
_EXACT = 2**53
#: Bytes of an answer in JSON: what is behind them is left out.
JSON_BYTES = 32 * 2**20


class WrittenRows(NamedTuple):
    """What was written, and whether there was more."""

    body: bytes
    truncated: bool


def as_json(batches: pa.RecordBatchReader, types: list[tuple[str, str]], rows: int) -> WrittenRows:
    """So many rows at most, as ``SqlAnswer`` has them, but for its ``seconds``."""
    encoded: list[bytes] = []
    size = 0
    more = False
    for row in _rows(batches):
        if len(encoded) >= rows or size > JSON_BYTES:
            more = True
            break
        encoded.append(msgspec.json.encode(row))
        size += len(encoded[-1])
    columns = msgspec.json.encode([{"name": name, "type": kind} for name, kind in types])
    truncated = b"true" if more else b"false"
    return WrittenRows(b'"columns":%b,"rows":[%b],"truncated":%b' % (columns, b",".join(encoded), truncated), more)


def write_csv(batches: pa.RecordBatchReader, path: str, rows: int, most_bytes: int) -> bool:
    """Write so many rows at most, with a line of names. Returns whether there are more. Raises BadQuery."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(batches.schema.names)
        for number, row in enumerate(_rows(batches)):
            if number >= rows:
                return True
            writer.writerow([_cell(value) for value in row])
            if number % 1000 == 0:
                _check_size(file.tell(), most_bytes)
        _check_size(file.tell(), most_bytes)
    return False


def write_parquet(batches: pa.RecordBatchReader, path: str, rows: int, most_bytes: int) -> bool:
    """As ``write_csv``, with the types that the columns have."""
    left = rows
    with open(path, "wb") as file, pq.ParquetWriter(file, batches.schema, compression="zstd") as writer:
        for batch in batches:
            if batch.num_rows > left:
                writer.write_batch(batch.slice(0, left))
                return True
            writer.write_batch(batch)
            left -= batch.num_rows
            _check_size(file.tell(), most_bytes)
    return False


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise BadQuery(f"the file would be larger than {most_bytes // 2**20} MiB; ask for less", "body.rows")


def _rows(batches: pa.RecordBatchReader) -> Iterator[list[Any]]:
    for batch in batches:
        columns = [[plain(value) for value in _values(column)] for column in batch.columns]
        yield from ([*row] for row in zip(*columns, strict=True))


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return [None if each is None else _nanoseconds(each) for each in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):  # a time that Python's calendar does not have
        values = column.cast(pa.string()).to_pylist()
    return values


def _nanoseconds(count: int) -> str:
    """A time that Python's have too few digits for."""
    text = (datetime(1970, 1, 1) + timedelta(microseconds=count // 1000)).isoformat(timespec="microseconds")
    return f"{text}{count % 1000:03}" if count % 1000 else text


def plain(value: Any) -> Any:
    """A value as JSON can say it: times are RFC 3339, bytes are hex, numbers that are not exact there are texts."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case Decimal():  # DuckDB's large integers come as such, without digits behind the point
            return plain(int(value)) if value.as_tuple().exponent == 0 else f"{value:f}"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case pa.MonthDayNano():
            return f"{value.months} months {value.days} days {value.nanoseconds / 1e9} seconds"
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return str(value)


def _cell(value: Any) -> Any:
    """What CSV has for a value: nothing for null, JSON for lists and structs."""
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return "true" if value is True else "false" if value is False else value
