"""The properties of published messages, without their payloads."""

from __future__ import annotations

import msgspec

from penstock.schema import FOREVER


class Properties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The common properties of all messages of one publish. Times are microseconds."""

    #: From now on; 0 = no end. None: the queue's default applies, unless ``expires_at`` is set.
    ttl: int | None = None
    #: With ``ttl`` the earlier end counts; 0 = none.
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


#: The defaults. ``publish`` compares by identity, so plain messages must use this object.
PLAIN = Properties()
