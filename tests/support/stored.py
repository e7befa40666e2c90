"""Messages as the journal returns them, for tests of compaction."""

from __future__ import annotations


class StoredRow:
    """A message with only a payload."""

    payload, source, carried_source = b"x", b"", b""
    expires_at = not_before = 0
    retries = 255
    correlation_id = request_id = asked_id = source_info = b""
    with_ttl = 0

    def __init__(self, position: int, queue: int, at: int) -> None:
        self.position = self.original = position
        self.queue = queue
        self.at = self.published_at = at
