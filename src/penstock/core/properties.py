"""The properties of published messages beside their payloads."""

from __future__ import annotations

import msgspec

from penstock.schema import FOREVER


class Properties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The common properties of all messages of one publish. Times are microseconds."""

    #: From now on; 0 = no end. None: the queue's default applies, unless there is ``expires_at``.
    ttl: int | None = None
    #: If there is ``ttl`` too, the earlier end counts; 0 = none.
    expires_at: int = 0
    priority: int = 0
    delay: int = 0
    retries: int = FOREVER
    correlation_id: bytes = b""
    #: These two belong to one message, so they go with a single payload.
    request_id: bytes = b""
    asked_id: bytes = b""
    #: These two are kept for readers of the journal, and have no effect.
    with_ttl: bool = False
    source_info: bytes = b""


#: The properties of a message without any.
PLAIN = Properties()
