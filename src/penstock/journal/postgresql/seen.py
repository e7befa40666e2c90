"""What this process knows as committed, in whichever role it came to know it.

A broker serves, loses the journal, and stands by again. If the database has lost commits meanwhile, who knew them
says so, whatever it is by then: so the journal's roles share this.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.journal.postgresql.database import BlockMark, Database, ShardRow


class Known(NamedTuple):
    """A block that was committed: its extent, and what it is told by."""

    extent: int
    mark: BlockMark


class Seen:
    """The last block that was seen to be committed."""

    def __init__(self) -> None:
        self.known: Known | None = None

    def note(self, extent: int, mark: BlockMark) -> None:
        """A block is committed."""
        if self.known is None or mark.end > self.known.mark.end:
            self.known = Known(extent, mark)

    def lost(self, database: Database, shard: ShardRow) -> tuple[int, int] | None:
        """Positions, end excluded, that are not there any more, or that other blocks have now; None: all is well.

        Raises DatabaseError.
        """
        known = self.known
        if known is None:
            return None
        if shard.head < known.mark.end:
            return shard.head, known.mark.end
        if known.mark.first < shard.low or database.mark(known.extent, known.mark.first) == known.mark:
            return None
        if known.mark.first < database.shard().low:  # trimmed in between
            return None
        return known.mark.first, known.mark.end
