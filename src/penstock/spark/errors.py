"""What can go wrong, as the person who runs a query reads it."""

from __future__ import annotations

#: Told with every loss, so that whoever gets the error knows what can be done.
ADVICE = "With option failOnDataLoss=false the query goes on with what is left"


class SourceError(RuntimeError):
    """Base of all errors of the data source."""


class BadOption(SourceError, ValueError):
    """An option, or a schema, that can't be meant."""


class BrokerAway(SourceError):
    """Nobody answers, or not in time."""


class Denied(SourceError):
    """The broker knows us, or doesn't, and says no."""


class NoQueue(SourceError):
    """There is no such queue."""


class DataLoss(SourceError):
    """Rows that the query should have seen can't be read any more."""


class Replaced(DataLoss):
    """The broker has another journal than the one that the query has read so far."""


class RowsDiffer(SourceError):
    """A write that is repeated has other rows than it had before."""


class Refused(SourceError):
    """The broker has no room for messages."""


class TakenOver(SourceError):
    """Another query consumes under the same name."""


class StoreFailed(SourceError):
    """An executor could not read or write a file of a table. What is committed is sound: run it again to go on."""
