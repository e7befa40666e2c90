"""Decode payloads to columns by a format and a schema, with a reason for each misfit. Pure: no Spark."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa

from penstock.spark.pipelines.archive import avro
from penstock.spark.pipelines.archive.conversion import Misfit, fit_json, fit_text
from penstock.spark.pipelines.archive.inference import infer, merge, without_nulls

FORMATS = ("raw", "text", "json", "csv", "avro")
#: In place of a schema: infer it from the payloads.
INFER = "infer"

_json = msgspec.json.Decoder()


class Decoding(msgspec.Struct, frozen=True):
    """How to read payloads. ``schema`` is an Avro schema, or else a serialized Arrow struct type (``pack``)."""

    format: str = "raw"
    schema: bytes = b""

    @property
    def type(self) -> pa.DataType | None:
        """The type of the column ``value``; None if there is none."""
        if self.format == "raw":
            return None
        if self.format == "text":
            return pa.string()
        if self.format == "avro":
            return avro.parse(self.schema.decode()).type
        return unpack(self.schema) if self.schema else None

    def check(self) -> None:
        """Raises ``ValueError`` if the format is unknown or lacks a schema."""
        if self.format not in FORMATS:
            raise ValueError(f"there is no format {self.format!r}: choose one of {', '.join(FORMATS)}")
        if self.format in ("csv", "avro") and not self.schema:
            raise ValueError(f"format {self.format} needs a schema: a payload does not show one")
        self.reader()

    def reader(self) -> Callable[[bytes], Any]:
        """A function that decodes a payload. It raises ``Misfit``."""
        match self.format:
            case "text":
                return _text
            case "json":
                return _json_reader(self.type)
            case "csv":
                return _csv_reader(self.type)
            case "avro":
                known = avro.parse(self.schema.decode())
                return lambda payload: avro.decode(known, payload)
        return lambda payload: None


def pack(kind: pa.DataType) -> bytes:
    """Serialize a type."""
    data: bytes = pa.schema([pa.field("value", kind)]).serialize().to_pybytes()
    return data


def unpack(data: bytes) -> pa.DataType:
    """Deserialize a type."""
    return pa.ipc.read_schema(pa.py_buffer(data)).field(0).type


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8, at byte {error.start}") from None


def _load(payload: bytes) -> Any:
    try:
        return _json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misfit(f"not JSON: {error}") from None
    except RecursionError:
        raise Misfit("nested too deeply to be read as JSON") from None


def _json_reader(kind: pa.DataType | None) -> Callable[[bytes], Any]:
    fit = fit_json(pa.struct([]) if kind is None else kind)
    return lambda payload: fit(_load(payload))


def _csv_reader(kind: pa.StructType) -> Callable[[bytes], Any]:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    fits = [(field.name, field.nullable, fit_text(field.type, f"value.{field.name}")) for field in fields]

    def read(payload: bytes) -> Any:
        try:
            rows = list(csv.reader(io.StringIO(_text(payload), newline=""), strict=True))
        except csv.Error as error:
            raise Misfit(f"not CSV: {error}") from None
        if len(rows) != 1 or len(rows[0]) != len(fits):
            shape = f"{len(rows)} lines" if len(rows) != 1 else f"{len(rows[0])} fields"
            raise Misfit(f"{shape}, where the schema has one line of {len(fits)} fields")
        values = {}
        for (name, nullable, fit), text in zip(fits, rows[0], strict=True):
            values[name] = fit(text)
            if values[name] is None and not nullable:
                raise Misfit(f"value.{name} is missing")
        return values

    return read


def decode(payloads: Iterable[bytes | None], decoding: Decoding) -> tuple[pa.Array | None, pa.Array]:
    """The column ``value`` (None if the format has none), and the reasons: null where a payload fits."""
    read = decoding.reader()
    values: list[Any] = []
    reasons: list[str | None] = []
    for payload in payloads:
        value = reason = None
        try:
            value = read(payload or b"")
        except Misfit as misfit:
            reason = str(misfit)
        except RecursionError:
            reason = "nested too deeply"
        values.append(value)
        reasons.append(reason)
    kind = decoding.type
    return (None if kind is None else pa.array(values, kind)), pa.array(reasons, pa.string())


def inferred(payloads: Iterable[bytes | None], known: pa.DataType | None) -> pa.DataType | None:
    """The common type of JSON objects and the known type; None if there was none. ``decode`` reports other values."""
    kind: pa.DataType = pa.null()
    for payload in payloads:
        try:
            value = _load(payload or b"")
            if isinstance(value, dict):
                kind = merge(kind, infer(value), firm=False)
        except (Misfit, RecursionError):
            continue
    return grown(known, kind)


def grown(known: pa.DataType | None, inferred: pa.DataType) -> pa.DataType | None:
    """The known type with the new inferred fields."""
    return without_nulls(inferred if known is None else merge(known, inferred, firm=True))
