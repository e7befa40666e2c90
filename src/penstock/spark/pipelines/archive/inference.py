"""Infer types of JSON values from payloads, and extend them as later payloads add fields. Pure: no Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from penstock.spark.pipelines.archive.conversion import Misfit

#: Nesting of objects and arrays: readers of tables limit the depth too.
MAX_LEVELS = 32


def infer(value: Any, levels: int = MAX_LEVELS) -> pa.DataType:
    """The type of a JSON value. Whole numbers have 64 bits. Raises ``Misfit`` if it is nested too deeply.

    Fields without a name, or whose names differ from another's only by case, are left out, since readers of tables
    can't tell them apart.
    """
    if not levels:
        raise Misfit(f"more than {MAX_LEVELS} objects and arrays in each other")
    match value:
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            kind: pa.DataType = pa.null()
            for each in value:
                kind = merge(kind, infer(each, levels - 1), firm=False)
            return pa.list_(kind)
        case dict():
            names = set({name.lower(): name for name in reversed(value) if name}.values())
            return pa.struct([pa.field(name, infer(value[name], levels - 1)) for name in value if name in names])
    return pa.null()


def merge(one: pa.DataType, other: pa.DataType, *, firm: bool) -> pa.DataType:
    """The type for both. Where they contradict each other, the first wins: such values will not fit, and get a reason.

    ``firm``: the first is in files already, so that only fields can be added; a whole number stays one.
    """
    if types.is_null(one) or one.equals(other):
        return other
    if types.is_null(other):
        return one
    if types.is_struct(one) and types.is_struct(other):
        return _merge_structs(one, other, firm=firm)
    if types.is_list(one) and types.is_list(other):
        return pa.list_(merge(one.value_type, other.value_type, firm=firm))
    numbers = {pa.int64(), pa.float64()}
    if not firm and {one, other} == numbers:
        return pa.float64()
    return one


def _merge_structs(one: pa.StructType, other: pa.StructType, *, firm: bool) -> pa.DataType:
    fields = {one.field(at).name: one.field(at) for at in range(one.num_fields)}
    names = {name.lower(): name for name in fields}
    for at in range(other.num_fields):
        field = other.field(at)
        if names.setdefault(field.name.lower(), field.name) != field.name:
            continue
        mine = fields.get(field.name)
        kind = field.type if mine is None else merge(mine.type, field.type, firm=firm)
        fields[field.name] = pa.field(field.name, kind, nullable=mine is None or mine.nullable)
    return pa.struct(list(fields.values()))


def without_nulls(kind: pa.DataType) -> pa.DataType | None:
    """The type without fields that were always null; None if nothing is left. Files can't have such columns."""
    if types.is_null(kind):
        return None
    if types.is_list(kind):
        inner = without_nulls(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if not types.is_struct(kind):
        return kind
    fields = []
    for at in range(kind.num_fields):
        inner = without_nulls(kind.field(at).type)
        if inner is not None:
            fields.append(kind.field(at).with_type(inner))
    return pa.struct(fields) if fields else None
