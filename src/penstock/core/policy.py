"""The rules of a queue. They are journalled as JSON whenever they change."""

from __future__ import annotations

from typing import Literal

import msgspec

MILLISECOND = 1000
SECOND = 1_000_000


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a queue does with its messages. Times are microseconds, 0 means no limit."""

    #: Time to live of a message that brings none of its own.
    default_ttl: int = 0
    #: Where a message goes when its time to live runs out.
    on_expiry: Literal["dead", "drop"] = "dead"
    #: A message that came back this often goes to the dead letters.
    max_deliveries: int = 0
    #: Without dead letters, a message that would go there is dropped.
    dead_letters: bool = True
    #: How many messages may wait (ready and delayed), and how many bytes of payload.
    max_depth: int = 0
    max_bytes: int = 0
    #: A full queue refuses a new message, or makes room by sending its oldest ready ones to the dead letters.
    on_full: Literal["reject", "drop-oldest"] = "reject"
    #: How long a lock holds that names no time.
    lock_duration: int = 30 * SECOND
    #: A request ID is remembered for this long; 0 = not at all.
    deduplication: int = 300 * SECOND
    #: A paused queue takes messages and gives none out.
    paused: bool = False

    def __post_init__(self) -> None:
        for name in ("default_ttl", "max_deliveries", "max_depth", "max_bytes", "deduplication"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is a number from 0 (no limit), not {getattr(self, name)}")
        if self.lock_duration <= 0:
            raise ValueError(f"lock_duration is more than 0 microseconds, not {self.lock_duration}")
