"""What a checkpoint remembers: a place in a journal.

    {"identity": "5f0c…", "position": 4711}                       mode=read: everything before this position was read
    {"identity": "5f0c…", "position": 4711, "mode": "consume"}    mode=consume: the leases before it are worked off

The identity is that of the journal. A broker whose data was replaced starts another one, whose positions mean something
else, so it must be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.spark.errors import SourceError


class Offset(NamedTuple):
    """A place in a journal."""

    identity: str
    position: int
    mode: str = "read"

    def to_dict(self) -> dict[str, Any]:
        """As Spark keeps it."""
        found: dict[str, Any] = {"identity": self.identity, "position": self.position}
        return found if self.mode == "read" else {**found, "mode": self.mode}

    def at(self, position: int) -> Offset:
        """Another place in the same journal."""
        return self._replace(position=position)


def offset(found: Mapping[str, Any], mode: str = "read") -> Offset:
    """Read what a checkpoint has. Raises SourceError for that of another source, or another mode."""
    identity, position, had = found.get("identity"), found.get("position"), found.get("mode", "read")
    sound = isinstance(identity, str) and re.fullmatch("[0-9a-f]{16}", identity) and isinstance(position, int)
    if not sound or isinstance(position, bool) or position < 1:  # type: ignore[operator]
        raise SourceError(f"the checkpoint has an offset that is none of ours: {dict(found)}. Use a new checkpoint")
    if had != mode:
        raise SourceError(f"the checkpoint is one of mode={had}, and this query has mode={mode}. Use a new checkpoint")
    return Offset(str(identity), int(position), mode)  # type: ignore[arg-type]
