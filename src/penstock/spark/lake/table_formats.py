"""The formats of tables, one entry each. What lists or opens formats derives from here.

Nothing is imported before a table is opened, so that a command line can list the formats at once.
"""

from __future__ import annotations

from typing import NamedTuple


class TableFormat(NamedTuple):
    """A format: its name in ``--kind``, its title for display, and its ``Table`` as ``module:class``."""

    name: str
    title: str
    table: str


#: In the order in which an existing table is recognised. Plain files come last: all formats have some.
FORMATS = {
    each.name: each
    for each in (
        TableFormat("delta", "Delta Lake", "penstock.spark.lake.delta:DeltaFormat"),
        TableFormat("iceberg", "Iceberg", "penstock.spark.lake.iceberg:IcebergFormat"),
        TableFormat("parquet", "plain Parquet", "penstock.spark.lake.parquet:ParquetFormat"),
    )
}
