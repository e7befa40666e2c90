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
        return _FORMATS[self.format][0](self.schema)

    def reader(self) -> Callable[[bytes], Any]:
        """A function that decodes a payload. It raises ``Misfit``. Raises ``ValueError`` for a schema without sense."""
        return _FORMATS[self.format][1](self.schema)


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


def _struct(schema: bytes) -> pa.DataType | None:
    return unpack(schema) if schema else None


def _avro_reader(schema: bytes) -> Callable[[bytes], Any]:
    known = avro.parse(schema.decode())
    return lambda payload: avro.decode(known, payload)


#: How each of ``payload_formats.FORMATS`` makes the type of ``value``, and a reader, of its schema.
_FORMATS: dict[str, tuple[Callable[[bytes], pa.DataType | None], Callable[[bytes], Callable[[bytes], Any]]]] = {
    "raw": (lambda schema: None, lambda schema: lambda payload: None),
    "text": (lambda schema: pa.string(), lambda schema: _text),
    "json": (_struct, lambda schema: _json_reader(_struct(schema))),
    "csv": (_struct, lambda schema: _csv_reader(_struct(schema))),
    "avro": (lambda schema: avro.parse(schema.decode()).type, _avro_reader),
}


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
