"""The client's errors, and whether a retry helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.messages import Outgoing, Published


class ClientError(Exception):
    """Base of all errors of the client.

    ``retriable``: the same call may succeed when repeated, and repeating it does no harm. After a failed publish,
    ``published`` has what was published before, and ``unsent`` what was not sent at all.
    """

    retriable = False
    published: Published | None = None
    unsent: tuple[Outgoing, ...] = ()


class BadURL(ClientError, ValueError):
    """The URL or one of its options is invalid. The text says what would be valid."""


class Unsupported(ClientError):
    """The protocol can't express an operation. ``instead`` names the protocols that can."""

    protocol = ""
    operation = ""
    instead: tuple[str, ...] = ()


class ConnectFailed(ClientError):
    """Connecting failed. Not retriable where waiting can't help: a certificate, a missing permission."""

    retriable = True


class Disconnected(ClientError):
    """The connection was lost, but no request was in flight. A new connection can continue."""

    retriable = True


class TimedOut(ClientError):
    """The broker did not answer or read in time. The connection is closed, since answers come in order."""

    retriable = True


class ProtocolProblem(ClientError):
    """The peer sent bytes that are not this protocol. Usually it is another kind of server.

    ``code`` is that of the :class:`~penstock.wire.stream.WireError` (docs/protocols), for programs.
    """

    code = ""


class Closed(ClientError):
    """The client was closed by its owner."""


class Busy(ClientError):
    """The connection is busy, and can't do this at the same time. Use another client."""


class NotHeld(ClientError):
    """The message can't be settled: it was already settled, its lock expired, or its connection is gone.

    In the last two cases the broker delivers it again.
    """


class NoMessage(ClientError):
    """SSPQ: the broker answered NO_RECEIVE, which carries no reason.

    It is shutting down (reconnect later), dead letters are switched off, or this client may not receive from the queue.
    """


class Refused(ClientError):
    """Kokaq: the broker answered Fail. ``reason`` is "bad", "exists", "not_allowed" or "infra".

    After a publish, ``messages`` are the refused ones. Retriable if the broker itself has a problem ("infra").
    """

    status = ""
    reason = ""
    messages: tuple[Outgoing, ...] = ()


class Uncertain(ClientError):
    """The connection was lost after a request was sent: whether the broker acted on it is unknown.

    After a publish, ``messages`` are those in doubt. The client does not resend them; do so if duplicates do no harm.
    Retriable only where the broker detects duplicates: Kokaq pushes that all have a request ID.
    """

    messages: tuple[Outgoing, ...] = ()
