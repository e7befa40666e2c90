"""The rules of a queue, twice: as the broker applies and journals them, and as users write them.

``QueueRules`` is what users see. The tables of the configuration file, the bodies of the HTTP API and its OpenAPI
document, the flags of ``penstock queue`` and the console's form are derived from its fields, types, titles and
descriptions. A new rule is a field of the same name in both structs. A time is ``NAME_seconds`` in ``QueueRules``, and
``NAME``, in microseconds, in ``Policy``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

MILLISECOND = 1000
SECOND = 1_000_000
#: The longest time that the protocols can express, 136 years. Ends of such times fit into the journal's columns.
MOST_SECONDS = 2**32

Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a queue does with its messages, journalled as JSON. Times are microseconds, 0 means no limit."""

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
    lock: int = msgspec.field(name="lock_duration", default=30 * SECOND)
    #: A request ID is remembered for this long; 0 = not at all.
    deduplication: int = 300 * SECOND
    #: A paused queue takes messages and gives none out.
    paused: bool = False

    def __post_init__(self) -> None:
        for name, value in structs.asdict(self).items():
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name} is a number from 0 (no limit), not {value}")
        if self.lock == 0:
            raise ValueError("lock is more than 0 microseconds, not 0")


class QueueRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue does with its messages, in the words of the configuration file. 0 means no limit."""

    default_ttl_seconds: Annotated[
        Seconds,
        Meta(
            title="Time to live, seconds",
            description="How long messages live that are published without a time to live. 0: no limit",
        ),
    ] = 0.0
    on_expiry: Annotated[
        Literal["dead", "drop"],
        Meta(
            title="Expired messages",
            description="What happens to messages whose time to live has run out",
            extra_json_schema={"x-choices": {"dead": "become dead letters", "drop": "are dropped"}},
        ),
    ] = "dead"
    max_deliveries: Annotated[
        Count,
        Meta(
            title="Maximum deliveries",
            description="Number of deliveries after which a message becomes a dead letter. 0: no limit",
        ),
    ] = 0
    dead_letters: Annotated[
        bool, Meta(title="Keep dead letters", description="Keep dead letters, or drop those messages")
    ] = True
    max_depth: Annotated[
        Count, Meta(title="Maximum messages", description="How many messages may wait. 0: no limit")
    ] = 0
    max_bytes: Annotated[
        Count, Meta(title="Maximum bytes", description="How many bytes of payload may wait. 0: no limit")
    ] = 0
    on_full: Annotated[
        Literal["reject", "drop-oldest"],
        Meta(
            title="When full",
            description="What a full queue does when a message is published",
            extra_json_schema={"x-choices": {"reject": "reject new messages", "drop-oldest": "drop the oldest"}},
        ),
    ] = "reject"
    lock_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=MOST_SECONDS,
            title="Lock duration, seconds",
            description="How long a consumer may hold a message (Kokaq)",
        ),
    ] = 30.0
    deduplication_seconds: Annotated[
        Seconds,
        Meta(
            title="De-duplication window, seconds",
            description="How long a request ID is remembered (Kokaq). 0: not at all",
        ),
    ] = 300.0
    paused: Annotated[bool, Meta(title="Paused", description="Accept messages and deliver none")] = False


_SECONDS = "_seconds"


def policy_of(rules: QueueRules) -> Policy:
    """The rules as the broker applies them. Times are rounded to microseconds, but never to 0: that means no limit."""
    values: dict[str, Any] = {}
    for name, value in structs.asdict(rules).items():
        values[name.removesuffix(_SECONDS)] = _microseconds(value) if name.endswith(_SECONDS) else value
    return Policy(**values)


def rules_of(policy: Policy) -> QueueRules:
    """The rules as users write them."""
    values: dict[str, Any] = {}
    for name in QueueRules.__struct_fields__:
        value = getattr(policy, name.removesuffix(_SECONDS))
        values[name] = value / SECOND if name.endswith(_SECONDS) else value
    return QueueRules(**values)


def _microseconds(seconds: float) -> int:
    return max(1, round(seconds * SECOND)) if seconds else 0
