"""Everything that can go wrong, and whether trying again helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.messages import Outgoing, Published


class ClientError(Exception):
    """Base of all errors of the client.

    ``retriable`` says whether the same call, made again as it was, has a fair chance and can do no harm. On an error of
    a publish, ``published`` tells of what went before, and ``unsent`` has what was not sent at all.
    """

    retriable = False
    published: Published | None = None
    unsent: tuple[Outgoing, ...] = ()


class BadURL(ClientError, ValueError):
    """The URL or one of its options makes no sense. The text names what would be right."""


class Unsupported(ClientError):
    """The protocol has no word for it. ``protocol``, ``operation`` and ``instead`` (who can) are in the text too."""

    protocol = ""
    operation = ""
    instead: tuple[str, ...] = ()


class ConnectFailed(ClientError):
    """No connection came about. Not retriable where waiting can't help: a certificate, a missing right."""

    retriable = True


class Disconnected(ClientError):
    """The connection was lost, and nothing that matters was under way on it. On the next one all is well."""

    retriable = True


class TimedOut(ClientError):
    """The broker did not answer, or did not read, in time. The connection is given up, since answers come in order."""

    retriable = True


class ProtocolProblem(ClientError):
    """The other side sent what this protocol does not know. Most often it is a server of another kind.

    ``code`` is that of the :class:`~penstock.wire.stream.WireError` (docs/protocols), for programs.
    """

    code = ""


class Closed(ClientError):
    """The client was closed by its owner."""


class Busy(ClientError):
    """The connection is at something that leaves no room for this. Another client of its own has that room."""


class NotHeld(ClientError):
    """The message can't be settled: it was settled before, its lock has ended, or the connection it came over is gone.

    But for the first case the broker gives it out again, to whoever consumes then.
    """


class NoMessage(ClientError):
    """SSPQ: the broker has said that no message will come (NO_RECEIVE), for a reason that it can't tell.

    It is shutting down (then it helps to connect again later), dead letters are switched off, or this client may not
    receive from the queue.
    """


class Refused(ClientError):
    """Kokaq: the broker has answered Fail. ``reason`` is "bad", "exists", "not_allowed" or "infra".

    On a publish, ``messages`` are the refused ones. Retriable where the trouble is the broker's own ("infra").
    """

    status = ""
    reason = ""
    messages: tuple[Outgoing, ...] = ()


class Uncertain(ClientError):
    """The connection was lost (or gave no answer) after something was sent: it may have happened, or not.

    ``messages`` are those in doubt, if it was a publish. Nothing is sent again by itself: do it if a duplicate does no
    harm. Retriable only where the broker would notice a duplicate: Kokaq pushes that all have a request ID.
    """

    messages: tuple[Outgoing, ...] = ()
