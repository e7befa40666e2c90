"""Convert JSON and text to Arrow types, with a reason for each value that does not fit. Pure: no Spark.

Each type becomes a function once; the function converts a value for Arrow, or raises ``Misfit``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import types


class Misfit(ValueError):
    """A value that does not fit the schema. The text is the reason, for the quarantine table."""


Fit = Callable[[Any], Any]


def fit_json(kind: pa.DataType, path: str = "value") -> Fit:
    """A function for JSON values."""
    if types.is_struct(kind):
        return _struct(kind, path)
    if types.is_list(kind):
        item = _nullable(fit_json(kind.value_type, f"{path}[]"), kind.value_field, f"{path}[]")
        return lambda value: [item(each) for each in _of(list, "an array", value, path)]
    if types.is_map(kind):
        item = _nullable(fit_json(kind.item_type, f"{path}.*"), kind.item_field, f"{path}.*")
        return lambda value: [(key, item(each)) for key, each in _of(dict, "an object", value, path).items()]
    return _plain(kind, path)


def _struct(kind: pa.StructType, path: str) -> Fit:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    inner = [
        (field.name, _nullable(fit_json(field.type, f"{path}.{field.name}"), field, f"{path}.{field.name}"))
        for field in fields
    ]

    def fit(value: Any) -> Any:
        fields = _of(dict, "an object", value, path)
        return {name: each(fields.get(name)) for name, each in inner}

    return fit


def _nullable(fit: Fit, field: pa.Field, path: str) -> Fit:
    def check(value: Any) -> Any:
        if value is not None:
            return fit(value)
        if not field.nullable:
            raise Misfit(f"{path} is missing")
        return None

    return check


def _of(kind: type, name: str, value: Any, path: str) -> Any:
    if not isinstance(value, kind):
        raise Misfit(f"{path} is {_shown(value)}, not {name}")
    return value


def _plain(kind: pa.DataType, path: str) -> Fit:
    if types.is_boolean(kind):
        return lambda value: _of(bool, "a boolean", value, path)
    if types.is_integer(kind):
        return _integer(kind, path)
    if types.is_floating(kind):
        return _floating(kind, path)
    if types.is_string(kind):
        return lambda value: _of(str, "a string", value, path)
    if types.is_binary(kind):
        return _converted(lambda text: base64.b64decode(text, validate=True), "base64", path)
    if types.is_timestamp(kind):
        return _converted(_moment, "a time (ISO 8601)", path)
    if types.is_date(kind):
        return _converted(date.fromisoformat, "a date (ISO 8601)", path)
    if types.is_decimal(kind):
        return _decimal(kind, path)
    raise ValueError(f"{path}: payloads can't be decoded to {kind}")


def _integer(kind: pa.DataType, path: str) -> Fit:
    most = 2 ** (kind.bit_width - 1) - 1

    def fit(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misfit(f"{path} is {_shown(value)}, not a whole number")
        if not -most - 1 <= value <= most:
            raise Misfit(f"{path} is {_shown(value)}, which does not fit {kind}")
        return value

    return fit


def _floating(kind: pa.DataType, path: str) -> Fit:
    def fit(value: Any) -> float:
        try:
            return float(_number(value, path))
        except OverflowError:
            raise Misfit(f"{path} is {_shown(value)}, which does not fit {kind}") from None

    return fit


def _number(value: Any, path: str) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Misfit(f"{path} is {_shown(value)}, not a number")
    return value


def _decimal(kind: pa.Decimal128Type, path: str) -> Fit:
    unit = Decimal(1).scaleb(-kind.scale)

    def fit(value: Any) -> Any:
        try:
            number = Decimal(str(value)) if not isinstance(value, bool) else Decimal("NaN")
            exact = number.quantize(unit)
        except InvalidOperation:
            raise Misfit(f"{path} is {_shown(value)}, not a number that fits {kind}") from None
        if exact != number or len(exact.as_tuple().digits) > kind.precision:
            raise Misfit(f"{path} is {value}, which does not fit {kind}")
        return exact

    return fit


def _converted(convert: Callable[[str], Any], name: str, path: str) -> Fit:
    def fit(value: Any) -> Any:
        try:
            return convert(_of(str, name, value, path))
        except (ValueError, OverflowError, binascii.Error) as error:
            if isinstance(error, Misfit):
                raise
            raise Misfit(f"{path} is {_shown(value)}, not {name}") from None

    return fit


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _shown(value: Any) -> str:
    """A short form of any value, for reasons."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def fit_text(kind: pa.DataType, path: str) -> Fit:
    """A function for fields of CSV: an empty field is null."""
    inner = _plain(kind, path)
    if types.is_string(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        return lambda text: inner(text) if text != "" else None
    if types.is_boolean(kind):
        words = {"true": True, "false": False}
        return lambda text: inner(words.get(text.lower(), text)) if text else None
    if types.is_binary(kind):
        return lambda text: inner(text) if text else None
    number: Callable[[str], Any] = int if types.is_integer(kind) else float

    def fit(text: str) -> Any:
        if text == "":
            return None
        try:
            parsed = number(text)
        except ValueError:
            raise Misfit(f"{path} is {_shown(text)}, not a number") from None
        return inner(parsed)

    return fit
