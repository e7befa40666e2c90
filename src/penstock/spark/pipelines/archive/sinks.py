"""The kinds of sinks, one entry each: ``--kind``, its help, its own flags and the page of the pipelines derive from it.

Nothing is imported before a sink is opened, so that a command line can list the kinds at once.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.spark.lake.table_formats import FORMATS


class SinkFlag(NamedTuple):
    """A flag of ``penstock pipeline archive`` for one kind. Its value is in ``ArchiveOptions.sink``, by its name."""

    name: str
    metavar: str
    help: str


class SinkKind(NamedTuple):
    """A kind: its name in ``--kind``, its title for display, its ``Sink`` as ``module:class``, and its flags."""

    name: str
    title: str
    sink: str
    flags: tuple[SinkFlag, ...] = ()


#: Tables of a lake in any format; a sink that is not a table is another entry.
SINKS = {
    each.name: SinkKind(each.name, each.title, "penstock.spark.pipelines.archive.table_sink:TableSink")
    for each in FORMATS.values()
}
#: The kind of a new archive.
DEFAULT_KIND = "delta"
