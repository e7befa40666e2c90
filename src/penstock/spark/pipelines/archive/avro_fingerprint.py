"""Which Avro schema a value in single-object encoding was written with. Pure.

Its fingerprint is CRC-64-AVRO of the schema's *parsing canonical form*: the schema without what does not matter to a
reader, written in one way. Both are Avro's own (specification 1.11, "Transforming into Parsing Canonical Form" and
"Schema Fingerprints").
"""

from __future__ import annotations

import json
from typing import Any

_EMPTY = 0xC15D213AA4D7A795
_ATTRIBUTES = ("name", "type", "fields", "symbols", "items", "values", "size")
_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _entry(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (_EMPTY if number & 1 else 0)
    return number


_TABLE = [_entry(number) for number in range(256)]


def fingerprint(schema: Any) -> bytes:
    """The 8 bytes that follow the mark, for a schema as JSON values."""
    found = _EMPTY
    for byte in canonical(schema).encode():
        found = (found >> 8) ^ _TABLE[(found ^ byte) & 0xFF]
    return found.to_bytes(8, "little")


def canonical(schema: Any) -> str:
    """The parsing canonical form."""
    return json.dumps(_reduced(schema, ""), ensure_ascii=False, separators=(",", ":"))


def _reduced(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_reduced(each, namespace) for each in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _full(schema, namespace)
    kind = schema["type"]
    if not isinstance(kind, str) or kind in _PRIMITIVES:
        return _reduced(kind, namespace)
    kept = {name: schema[name] for name in _ATTRIBUTES if name in schema}
    if kind in _NAMED:
        kept["name"] = _full(schema["name"], schema.get("namespace", namespace))
        namespace = kept["name"].rpartition(".")[0]
    for name in ("items", "values"):
        if name in kept:
            kept[name] = _reduced(kept[name], namespace)
    if "fields" in kept:
        kept["fields"] = [
            {"name": field["name"], "type": _reduced(field["type"], namespace)} for field in kept["fields"]
        ]
    return kept


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
