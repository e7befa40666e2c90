"""The data source's errors, worded for the person who runs a query."""

from __future__ import annotations

#: Appended to every data-loss error.
ADVICE = "With option failOnDataLoss=false the query continues with the remaining rows"


class SourceError(RuntimeError):
    """Base of all errors of the data source."""


class BadOption(SourceError, ValueError):
    """An invalid option or schema."""


class BrokerAway(SourceError):
    """The broker does not answer, or not in time."""


class Denied(SourceError):
    """The broker denies access."""


class NoQueue(SourceError):
    """The queue does not exist."""


class DataLoss(SourceError):
    """Rows that the query should have read are lost."""


class Replaced(DataLoss):
    """The broker has another journal than the one that the query read before."""


class RowsDiffer(SourceError):
    """A repeated write has other rows than before."""


class Refused(SourceError):
    """The broker has no room for the messages."""


class TakenOver(SourceError):
    """Another query consumes under the same reader name."""


class StoreFailed(SourceError):
    """An executor could not read or write a table's file. Committed data is intact: run the query again to continue."""
