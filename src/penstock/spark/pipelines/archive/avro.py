"""Avro values: a schema (JSON) becomes a reader and an Arrow type. Pure: no Spark.

A payload is one value, bare or in *single-object encoding*: preceded by a two-byte mark and the schema's fingerprint. A
bare value may begin with the same two bytes, so they count only together with the fingerprint. Files of many values are
not messages, and are not read.

fastavro parses schemas, names and fingerprints. Values are read here, strictly: fastavro takes branch -1 of a union for
its last one and a boolean of 5 for true, rounds decimals that are too long, and expands six bytes into an array of
billions of nulls.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema, to_parsing_canonical_form

from penstock.spark.pipelines.archive.conversion import Misfit

_MARK = b"\xc3\x01"
_MARK_SIZE = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Readers of tables limit the depth too.
_TOO_DEEP = 64
#: Characters of a schema, and columns that it may describe: nested records that are named repeatedly multiply.
SCHEMA_CHARACTERS = 2**20
MOST_COLUMNS = 10_000
#: Digits of Arrow's decimal column.
_MOST_DIGITS = 38


class Cursor:
    """A payload and the position of its next unread byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        #: Items of all arrays and maps so far. Items may take no bytes, so nested arrays could be endless.
        self.items = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size < 0 or self.at + size > len(self.data):
            raise Misfit(f"the Avro value ends too early, at byte {len(self.data)}")
        data = self.data[self.at : self.at + size]
        self.at += size
        return data

    def number(self) -> int:
        """A zig-zag coded number of variable length."""
        shift = bits = 0
        while True:
            byte = self.take(1)[0]
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (bits >> 1) ^ -(bits & 1)
            shift += 7
            if shift > 63:
                raise Misfit(f"a number of the Avro value is too long, at byte {self.at}")


Read = Callable[[Cursor], Any]


class Avro(NamedTuple):
    """A schema, or a part of one: its type and reader."""

    type: pa.DataType
    read: Read
    #: Columns of this type and all within it. A type that is named twice counts twice.
    columns: int = 1


class Schema(NamedTuple):
    """A whole schema with its fingerprint."""

    type: pa.DataType
    read: Read
    fingerprint: bytes


def parse(text: str) -> Schema:
    """Parse a schema. Raises ``ValueError`` if it is invalid or does not describe a table."""
    if len(text) > SCHEMA_CHARACTERS:
        raise ValueError(f"the Avro schema has {len(text)} characters: at most {SCHEMA_CHARACTERS}")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError("the Avro schema is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the Avro schema is not JSON: {error}") from None
    try:
        known = parse_schema(schema)
        mark = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        avro = Parser().parse(known, 0)
        return Schema(avro.type, avro.read, bytes.fromhex(mark))
    except UnknownType as error:
        raise ValueError(f"{json.dumps(error.name)[:80]} is no Avro type that can be read") from None
    except KeyError as error:
        raise ValueError(f"a part of the Avro schema has no {error.args[0]!r}") from None
    except RecursionError:
        raise ValueError("the Avro schema is nested too deeply") from None
    except (TypeError, AttributeError):
        raise ValueError("a part of the Avro schema is neither a name, nor an object whose type is one") from None
    except (SchemaParseException, pa.ArrowException) as error:
        raise ValueError(f"the Avro schema can't be understood: {error}") from None


def decode(schema: Schema, payload: bytes) -> Any:
    """Decode one value. Raises ``Misfit``."""
    if not payload.startswith(_MARK):
        return _whole(schema.read, payload, 0)
    fingerprint = payload[len(_MARK) : _MARK_SIZE]
    if fingerprint == schema.fingerprint:
        return _whole(schema.read, payload, _MARK_SIZE)
    try:
        return _whole(schema.read, payload, 0)
    except Misfit as misfit:
        if len(payload) < _MARK_SIZE:
            raise
        text = f"its fingerprint is {fingerprint.hex()}, that of the schema {schema.fingerprint.hex()}"
        raise Misfit(f"the Avro value was written with another schema: {text}") from misfit


def _whole(read: Read, payload: bytes, start: int) -> Any:
    cursor = Cursor(payload)
    cursor.at = start
    value = read(cursor)
    if cursor.at != len(payload):
        raise Misfit(f"{len(payload) - cursor.at} byte(s) are left over behind the Avro value, at byte {cursor.at}")
    return value


class Parser:
    """Turns parsed schemas, whose names are all full names, into readers."""

    def __init__(self) -> None:
        self._named: dict[str, Avro] = {}
        self._makers: dict[str, Callable[[Any, int], Avro]] = {
            **dict.fromkeys(_PLAIN, self._primitive),
            "record": self._record, "enum": self._enum, "fixed": self._fixed, "array": self._array, "map": self._map,
        }  # fmt: skip

    def parse(self, schema: Any, depth: int) -> Avro:
        """The type and reader of a schema or a part of one."""
        if depth > _TOO_DEEP:
            raise ValueError("the Avro schema is nested too deeply")
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parse(kind, depth + 1)
        if kind in self._makers:
            return self._makers[kind](schema, depth)
        if kind not in self._named:  # fastavro knows it, so its definition most likely contains itself
            raise ValueError(f"{kind} in the Avro schema contains itself, or is no type that can be read")
        return self._named[kind]

    def _keep(self, schema: Any, avro: Avro) -> Avro:
        self._named[schema["name"]] = avro
        return avro

    def _primitive(self, schema: Any, depth: int) -> Avro:
        plain = _PLAIN[schema["type"]]
        logical = _LOGICAL.get((schema["type"], schema.get("logicalType", "")))
        if logical is not None:
            kind, convert = logical
            return Avro(kind, lambda cursor: convert(plain.read(cursor)))
        if schema["type"] == "bytes" and schema.get("logicalType") == "decimal":
            return _decimal(schema, plain.read)
        return plain

    def _record(self, schema: Any, depth: int) -> Avro:
        fields = [(field["name"], self.parse(field["type"], depth + 1)) for field in schema["fields"]]
        if not fields:
            raise ValueError(f"the record {schema['name']} of the Avro schema has no fields")
        columns = 1 + sum(inner.columns for _, inner in fields)
        if columns > MOST_COLUMNS:
            raise ValueError(f"the Avro schema has more than {MOST_COLUMNS} columns")
        kind = pa.struct([pa.field(name, inner.type) for name, inner in fields])
        read: Read = lambda cursor: {name: inner.read(cursor) for name, inner in fields}  # noqa: E731
        return self._keep(schema, Avro(kind, read, columns))

    def _enum(self, schema: Any, depth: int) -> Avro:
        symbols = list(schema["symbols"])

        def read(cursor: Cursor) -> Any:
            return _choose(symbols, cursor, "symbol")

        return self._keep(schema, Avro(pa.string(), read))

    def _fixed(self, schema: Any, depth: int) -> Avro:
        size = schema["size"]
        if not isinstance(size, int):
            raise ValueError(f"the size of a fixed type in the Avro schema is {json.dumps(size)}, not a whole number")
        if schema.get("logicalType") == "decimal":
            return self._keep(schema, _decimal(schema, lambda cursor: cursor.take(size)))
        return self._keep(schema, Avro(pa.binary(), lambda cursor: cursor.take(size)))

    def _array(self, schema: Any, depth: int) -> Avro:
        inner = self.parse(schema["items"], depth + 1)
        return Avro(pa.list_(inner.type), lambda cursor: _blocks(cursor, inner.read), inner.columns)

    def _map(self, schema: Any, depth: int) -> Avro:
        inner = self.parse(schema["values"], depth + 1)
        kind = pa.map_(pa.string(), inner.type)
        return Avro(kind, lambda cursor: _blocks(cursor, lambda each: (_text(each), inner.read(each))), inner.columns)

    def _union(self, schema: list[Any], depth: int) -> Avro:
        """A union of null and one other type is a nullable column. Others would be several columns, and are refused."""
        branches = [self.parse(each, depth + 1) for each in schema]
        kinds = [branch.type for branch in branches if not pa.types.is_null(branch.type)]
        if len({str(kind) for kind in kinds}) != 1:
            raise ValueError("a union that can be read has null and one other type")

        def read(cursor: Cursor) -> Any:
            return _choose(branches, cursor, "branch").read(cursor)

        return Avro(kinds[0], read, max(branch.columns for branch in branches))


def _choose(choices: list[Any], cursor: Cursor, name: str) -> Any:
    number = cursor.number()
    if not 0 <= number < len(choices):
        raise Misfit(f"the Avro value has {name} {number} of {len(choices)}, at byte {cursor.at}")
    return choices[number]


def _blocks(cursor: Cursor, read: Read) -> list[Any]:
    items: list[Any] = []
    while count := cursor.number():
        if count < 0:
            count = -count
            cursor.number()
        cursor.items += count
        if cursor.items > len(cursor.data):
            text = f"arrays of {cursor.items} items are longer than the whole Avro value"
            raise Misfit(f"{text}, at byte {cursor.at}")
        items += [read(cursor) for _ in range(count)]
    return items


def _text(cursor: Cursor) -> str:
    try:
        return cursor.take(cursor.number()).decode()
    except UnicodeDecodeError:
        raise Misfit(f"a string of the Avro value is not UTF-8, before byte {cursor.at}") from None


def _boolean(cursor: Cursor) -> bool:
    byte = cursor.take(1)
    if byte not in (b"\0", b"\1"):
        raise Misfit(f"a boolean of the Avro value is {byte.hex()}, at byte {cursor.at - 1}")
    return byte == b"\1"


def _decimal(schema: Any, read: Read) -> Avro:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision not in range(1, _MOST_DIGITS + 1):
        raise ValueError(f"a decimal of the Avro schema has {precision} digits: 1 to {_MOST_DIGITS} can be read")
    kind = pa.decimal128(precision, scale)
    most = 10**precision

    def convert(cursor: Cursor) -> Decimal:
        number = int.from_bytes(read(cursor), "big", signed=True)
        if abs(number) >= most:
            raise Misfit(f"a decimal of the Avro value has more than {precision} digits, before byte {cursor.at}")
        return Decimal(number).scaleb(-scale)

    return Avro(kind, convert)


def _whole_number(bits: int) -> Read:
    """An integer within the range of its type: Avro can encode longer ones, but no column holds them."""
    most = 2 ** (bits - 1)

    def read(cursor: Cursor) -> int:
        number = cursor.number()
        if not -most <= number < most:
            raise Misfit(f"a number of the Avro value is {number}, which is more than {bits} bits, at byte {cursor.at}")
        return number

    return read


def _after(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise Misfit(f"a time of the Avro value is out of range: {microseconds}") from None


def _day(days: int) -> date:
    try:
        return _EPOCH.date() + timedelta(days=days)
    except OverflowError:
        raise Misfit(f"a date of the Avro value is out of range: {days}") from None


_PLAIN = {
    "null": Avro(pa.null(), lambda cursor: None),
    "boolean": Avro(pa.bool_(), _boolean),
    "int": Avro(pa.int32(), _whole_number(32)),
    "long": Avro(pa.int64(), _whole_number(64)),
    "float": Avro(pa.float32(), lambda cursor: struct.unpack("<f", cursor.take(4))[0]),
    "double": Avro(pa.float64(), lambda cursor: struct.unpack("<d", cursor.take(8))[0]),
    "bytes": Avro(pa.binary(), lambda cursor: cursor.take(cursor.number())),
    "string": Avro(pa.string(), _text),
}
_TIME = pa.timestamp("us", tz="UTC")
_LOGICAL: dict[tuple[str, str], tuple[pa.DataType, Callable[[Any], Any]]] = {
    ("int", "date"): (pa.date32(), _day),
    ("long", "timestamp-millis"): (_TIME, lambda value: _after(value * 1000)),
    ("long", "timestamp-micros"): (_TIME, _after),
}
