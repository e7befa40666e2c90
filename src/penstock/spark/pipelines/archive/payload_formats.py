"""The formats of payloads. Imports nothing heavy, so that the command line can list them quickly."""

from __future__ import annotations

from typing import NamedTuple

_COLUMNS = "columns (id long, name string)"


class PayloadFormat(NamedTuple):
    """A format: its name in ``--format``, and its schema in words; empty if it has none."""

    name: str
    schema: str = ""


FORMATS = {
    each.name: each
    for each in (
        PayloadFormat("raw"),
        PayloadFormat("text"),
        PayloadFormat("json", f"{_COLUMNS}, or infer"),
        PayloadFormat("csv", _COLUMNS),
        PayloadFormat("avro", "the Avro schema"),
    )
}
DEFAULT_FORMAT = "raw"


def check_schema(name: str, schema: str) -> None:
    """Raise ``ValueError`` for an unknown format, a missing schema, or a schema for a format without one."""
    if name not in FORMATS:
        raise ValueError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    if schema and not FORMATS[name].schema:
        raise ValueError(f"format {name} has no schema: leave it out, or choose another format")
    if FORMATS[name].schema and not schema:
        raise ValueError(f"format {name} needs a schema: {FORMATS[name].schema}")
