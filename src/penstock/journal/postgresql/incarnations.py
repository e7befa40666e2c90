"""Incarnations of a database: what it was since it was last started, promoted or restored.

An extent knows in which incarnation it was begun. An owner that finds another one can't know what is lost behind the
head: this server may have been put back to an earlier state. So numbering goes on where no position can have been given
out (``contract.resume_after``), and nothing is added to the extents that are there. A reader beyond the head then
stands in a gap of the numbering, and is told of data loss.

    positions     1 … 302    303 … 605       resume_after(303) …
                  kept       lost            what came after the restore
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.journal.contract import resume_after
from penstock.journal.format.checksum import crc32
from penstock.journal.postgresql.database import ExtentRow, ShardRow

#: Of an extent after which another incarnation begins, whatever server it is on: a restore or an operator said so.
ENDED = -1


def incarnation_of(text: str) -> int:
    """The number of an incarnation, from what a server says of itself. Never 0 or negative."""
    return crc32(text.encode()) % 2**31 or 1


def is_another(made_in: bytes | None, extents: Sequence[ExtentRow], incarnation: int) -> bool:
    """Whether the journal was last written, or made, in another incarnation. 0, on either side, is not known."""
    last = [int(made_in or 0), *(row.incarnation for row in extents if not row.kept)][-1]
    return last == ENDED or bool(last and incarnation and last != incarnation)


def accepting(accepted: bytes | None, held: bytes | None, shard: ShardRow, firsts: Iterable[int], now: int) -> bytes:
    """The losses that operators have accepted, with those that are accepted now: what was behind the head.

    ``held`` is a loss that waits for an operator. The journal may have gone on since: that loss ends where the next of
    the extents begins, whose first positions are given.
    """
    end = resume_after(shard.head, now)
    low = min(json.loads(held or b"{}").get("lost", [shard.head])[0], shard.head)
    high = min((first for first in firsts if first > low), default=end)
    return json.dumps([*json.loads(accepted or b"[]"), [low, high], [shard.head, end]]).encode()
