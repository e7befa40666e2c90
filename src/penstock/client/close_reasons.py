"""Why the broker closed a connection: the only refusal that protocols without confirmations have.

There are few reasons. Some can be worked out here; with the option ``ask`` the broker reports its health, its limits
and how full a queue is over another protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from penstock.client.aio import AsyncClient

#: Seconds for all questions together: a caller who was just refused should not wait long for the reason.
PATIENCE = 5.0


class Unconfirmed:
    """What a client sent without a confirmation, over all its connections."""

    def __init__(self) -> None:
        self.count = 0
        self.largest = 0
        self.queue: str | None = None
        #: An error has reported the doubt to the caller.
        self.reported = False

    def note(self, queue: str | None, sizes: list[int]) -> None:
        """These were handed to the connection."""
        self.count += len(sizes)
        self.largest = max([self.largest, *sizes])
        self.queue = queue


def reasons(sent: Unconfirmed) -> str:
    """Why a broker closes a publishing connection, as far as the client can know."""
    return (
        f"a broker closes without an answer if a message is too large (the largest had {sent.largest} bytes), if "
        "this client may not publish there, if the queue or the disk stays full, or to shut down; its log says which"
    )


async def over_limit(client: AsyncClient, sent: Unconfirmed) -> str:
    """A sentence if the largest message exceeds the broker's limit, else empty."""
    most = _number(str((await client.counters()).get("source", "")), "max_payload")
    over = most is not None and sent.largest > most
    return f"a message of {sent.largest} bytes is over its limit of {most}" if over else ""


async def asked(client: AsyncClient, sent: Unconfirmed) -> str:
    """What the broker reports that would explain the close; empty if nothing does."""
    found = []
    if problem := await client.health():
        found.append(f"it is unhealthy: {problem}")
    if over := await over_limit(client, sent):
        found.append(over)
    queue = sent.queue or client.address.queue
    if queue is not None:
        try:
            info = await client.queue_info(queue)
        except Refused as refusal:
            found.append(f"for {queue!r} it answers {refusal.reason.replace('_', ' ')}")
        else:
            found += _fullness(queue, info.depth or 0, info.limits)
    return "; ".join(found)


def _fullness(queue: str, depth: int, limits: str) -> list[str]:
    most = _number(limits, "max_depth")
    size, room = _number(limits, "bytes"), _number(limits, "max_bytes")
    if most is not None and depth >= most:
        return [f"{queue!r} is full: {depth} of {most} messages"]
    if size is not None and room is not None:
        return [f"{queue!r} has {size} of {room} bytes"]
    return []


def _number(text: str, name: str) -> int | None:
    """A number in a text like ``a=1 b=2``."""
    found = dict(part.partition("=")[::2] for part in text.split())
    return int(found[name]) if found.get(name, "").isdigit() else None


def no_answer(error: ClientError | TimeoutError) -> str:
    """Why asking the broker failed."""
    return f"asking it failed: {error or f'no answer within {PATIENCE:g} s'}"
