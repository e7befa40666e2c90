"""Rows of an answer as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple, TextIO
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.sql.database import BadQuery

#: Integers up to this size are exact in every JSON reader.
_EXACT = 2**53
#: Bytes of a JSON answer: rows beyond are left out.
JSON_BYTES = 32 * 2**20
#: Infinite times, which Python's datetime lacks, and their text.
_NOT_IN_PYTHON = (ValueError, OverflowError, pa.ArrowException)
#: Characters that make a spreadsheet compute a cell as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|inf)")


class WrittenRows(NamedTuple):
    """The rows written, and whether there were more."""

    body: bytes
    truncated: bool


def as_json(batches: pa.RecordBatchReader, types: list[tuple[str, str]], rows: int) -> WrittenRows:
    """At most ``rows`` rows, in the shape of ``SqlAnswer`` without its ``seconds``."""
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


class _Lines:
    """Ends lines with LF. The CSV writer ends them with CRLF, so that it quotes carriage returns in values too."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write a line that the CSV writer ended with CRLF."""
        self._file.write(line.removesuffix("\r\n") + "\n")


def write_csv(batches: pa.RecordBatchReader, path: str, rows: int, most_bytes: int) -> bool:
    """Write a header and at most ``rows`` rows. Returns whether there are more. Raises BadQuery."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(_Lines(file), lineterminator="\r\n")
        writer.writerow([_cell(name) for name in batches.schema.names])
        for number, row in enumerate(_rows(batches)):
            if number >= rows:
                return True
            writer.writerow([_cell(value) for value in row])
            if number % 1000 == 0:
                _check_size(file.tell(), most_bytes)
        _check_size(file.tell(), most_bytes)
    return False


def write_parquet(batches: pa.RecordBatchReader, path: str, rows: int, most_bytes: int) -> bool:
    """As ``write_csv``, but keeps the types of the columns."""
    try:
        with open(path, "wb") as file, pq.ParquetWriter(file, batches.schema, compression="zstd") as writer:
            return _write_batches(batches, file, writer, rows, most_bytes)
    except pa.ArrowNotImplementedError as error:
        raise BadQuery(f"Parquet has no such type: {error}; cast the column, or ask for CSV") from None


def _write_batches(
    batches: pa.RecordBatchReader, file: BinaryIO, writer: pq.ParquetWriter, left: int, most_bytes: int
) -> bool:
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
    except _NOT_IN_PYTHON:
        values = [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    """A value that contains something Python can't represent: that part as text."""
    try:
        return scalar.as_py()
    except _NOT_IN_PYTHON:
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(each) for name, each in scalar.items()}
        if isinstance(scalar, pa.ListScalar):
            return [_value(each) for each in scalar.values]
        try:
            return scalar.cast(pa.string()).as_py()
        except _NOT_IN_PYTHON:
            return str(getattr(scalar, "value", None))


def _nanoseconds(count: int) -> str:
    """A time with more digits than Python's datetime has."""
    text = (datetime(1970, 1, 1) + timedelta(microseconds=count // 1000)).isoformat(timespec="microseconds")
    return f"{text}{count % 1000:03}" if count % 1000 else text


def plain(value: Any) -> Any:
    """A value for JSON: times as RFC 3339, bytes as hex, numbers that JSON readers would round as text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case Decimal():  # DuckDB's large integers arrive as Decimal without fractional digits
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
    """A value for CSV: null is empty, lists and structs are JSON, and nothing is a formula for a spreadsheet.

    A text that begins like a formula gets a leading apostrophe, unless it is a number.
    """
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return "true" if value is True else "false" if value is False else value
