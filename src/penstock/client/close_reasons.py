"""What can be known of a connection that the broker closed: protocols that do not confirm refuse in no other way.

The reasons are few, and some can be told from here or asked for: over another protocol (the option ``ask``) it says how
it is, what it takes, and how full a queue is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from penstock.client.aio import AsyncClient

#: Seconds for the whole question: whoever has just been refused does not want to wait for the reason too.
PATIENCE = 5.0


class Unconfirmed:
    """What went out without a confirmation, over all connections of a client."""

    def __init__(self) -> None:
        self.count = 0
        self.largest = 0
        self.queue: str | None = None
        #: The caller has been told that something is in doubt.
        self.told = False

    def note(self, queue: str | None, sizes: list[int]) -> None:
        """These were handed to the connection."""
        self.count += len(sizes)
        self.largest = max([self.largest, *sizes])
        self.queue = queue


def reasons(sent: Unconfirmed) -> str:
    """Why a broker closes a connection that publishes, as far as one can know from here."""
    return (
        f"a broker closes without a word if a message is too large for it (the largest had {sent.largest} bytes), if "
        "this client may not publish there, if the queue or the disk stays full, or to shut down; its log says which"
    )


async def over_limit(client: AsyncClient, sent: Unconfirmed) -> str:
    """That the largest message is more than the broker takes, if it is."""
    most = _number(str((await client.counters()).get("source", "")), "max_payload")
    over = most is not None and sent.largest > most
    return f"a message of {sent.largest} bytes is over its limit of {most}" if over else ""


async def asked(client: AsyncClient, sent: Unconfirmed) -> str:
    """What the broker says when it is asked; what it does not say is left out. Empty: nothing that would explain it."""
    told = []
    if ill := await client.health():
        told.append(f"it is not well: {ill}")
    if over := await over_limit(client, sent):
        told.append(over)
    queue = sent.queue or client.address.queue
    if queue is not None:
        try:
            info = await client.queue_info(queue)
        except Refused as refusal:
            told.append(f"of {queue!r} it says {refusal.reason.replace('_', ' ')}")
        else:
            told += _fullness(queue, info.depth or 0, info.limits)
    return "; ".join(told)


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


def unheard(error: ClientError | TimeoutError) -> str:
    """Why the question itself came to nothing."""
    return f"asking it came to nothing: {error or f'no answer within {PATIENCE:g} s'}"
