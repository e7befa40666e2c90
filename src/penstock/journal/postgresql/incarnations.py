"""Incarnations of a database: each start, promotion or restore of the server begins another one.

An extent records the incarnation in which it was begun. An owner that finds another one cannot know how much is lost
behind the head: the server may have been restored to an earlier state. So numbering continues above every position that
may have been used (``contract.resume_after``), and nothing is added to existing extents. A reader beyond the head is
then in a gap of the numbering, and gets a data loss error.

    positions     1 … 302    303 … 605       resume_after(303) …
                  kept       lost            after the restore
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.journal.contract import resume_after
from penstock.journal.format.checksum import crc32
from penstock.journal.postgresql.database import ExtentRow, ShardRow

#: Marks an extent as the last of its incarnation on any server, after a restore or an operator's decision.
ENDED = -1


def incarnation_of(text: str) -> int:
    """The number of an incarnation, from a server's description of itself. Always positive."""
    return crc32(text.encode()) % 2**31 or 1


def is_another(made_in: bytes | None, extents: Sequence[ExtentRow], incarnation: int) -> bool:
    """Whether the journal was last written, or made, in another incarnation. 0 on either side means unknown."""
    last = [int(made_in or 0), *(row.incarnation for row in extents if not row.kept)][-1]
    return last == ENDED or bool(last and incarnation and last != incarnation)


def accepting(accepted: bytes | None, held: bytes | None, shard: ShardRow, firsts: Iterable[int], now: int) -> bytes:
    """The accepted losses, extended by everything after the head, as JSON.

    ``held`` is a loss that waits for an operator. The journal may have continued since then: that loss ends at the next
    of ``firsts``, the first positions of the extents.
    """
    end = resume_after(shard.head, now)
    low = min(json.loads(held or b"{}").get("lost", [shard.head])[0], shard.head)
    high = min((first for first in firsts if first > low), default=end)
    return json.dumps([*json.loads(accepted or b"[]"), [low, high], [shard.head, end]]).encode()
