"""Messages to and from the process with Spark: lines on its standard input, JSON values on its output."""

from __future__ import annotations

import msgspec


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    endpoint: str
    lake: str
    #: Seconds between two triggers.
    seconds: float


class SparkReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Spark runs, and the pipelines begin."""

    spark: str


class Going(msgspec.Struct, frozen=True, kw_only=True, tag="going"):
    """How far a pipeline is."""

    pipeline: str
    rows: int
    lag_rows: int | None


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag="broken"):
    """It can't go on."""

    reason: str


Line = SparkReady | Going | Broken
