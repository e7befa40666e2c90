"""A queue's rules: as the API tells them, as the core has them, and their version."""

from __future__ import annotations

import hashlib

import msgspec

from penstock.admin.resources.queues import Rules
from penstock.core.policy import SECOND, Policy


def rules_of(policy: Policy) -> Rules:
    """As the API tells them."""
    return Rules(
        default_ttl_seconds=policy.default_ttl / SECOND,
        on_expiry=policy.on_expiry,
        max_deliveries=policy.max_deliveries,
        dead_letters=policy.dead_letters,
        max_depth=policy.max_depth,
        max_bytes=policy.max_bytes,
        on_full=policy.on_full,
        lock_seconds=policy.lock_duration / SECOND,
        deduplication_seconds=policy.deduplication / SECOND,
        paused=policy.paused,
    )


def policy_of(rules: Rules) -> Policy:
    """As the core has them. A lock lasts a microsecond at least."""
    return Policy(
        default_ttl=int(rules.default_ttl_seconds * SECOND),
        on_expiry=rules.on_expiry,
        max_deliveries=rules.max_deliveries,
        dead_letters=rules.dead_letters,
        max_depth=rules.max_depth,
        max_bytes=rules.max_bytes,
        on_full=rules.on_full,
        lock_duration=max(1, int(rules.lock_seconds * SECOND)),
        deduplication=int(rules.deduplication_seconds * SECOND),
        paused=rules.paused,
    )


def version_of(number: int, policy: Policy) -> str:
    """Of the rules of a queue. The same rules are the same version: whoever changed them back has lost nothing."""
    return hashlib.sha256(b"%d " % number + msgspec.json.encode(policy)).hexdigest()[:16]
