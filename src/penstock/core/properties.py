"""What a publisher says of its messages beside their payloads."""

from __future__ import annotations

import msgspec

from penstock.schema import FOREVER


class Properties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The properties that all messages of one publish have in common. Times are microseconds."""

    #: From now on; 0 is for ever. None: the queue's default holds, unless there is ``expires_at``.
    ttl: int | None = None
    #: With ``ttl`` too, the earlier end counts; 0 = none.
    expires_at: int = 0
    priority: int = 0
    delay: int = 0
    retries: int = FOREVER
    correlation_id: bytes = b""
    #: These two belong to one message, so they go with a single payload.
    request_id: bytes = b""
    asked_id: bytes = b""
    #: These two are kept for readers of the journal, and change nothing.
    with_ttl: bool = False
    source_info: bytes = b""


#: Of a message of which nothing is said.
PLAIN = Properties()
