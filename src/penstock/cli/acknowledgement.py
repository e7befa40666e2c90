"""Acknowledging across connections, for commands that take messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.output import note
from penstock.client import Disconnected, NotHeld, TimedOut, Uncertain, aio
from penstock.client.messages import Message


async def acknowledge(client: aio.AsyncClient, messages: Sequence[Message]) -> bool:
    """Acknowledge them. False: their connection was lost before, they may come again, and the client goes on.

    Without ``reconnect`` it can't go on, and the loss is raised.
    """
    try:
        await client.ack_many(messages)
    except (NotHeld, Uncertain, Disconnected, TimedOut) as error:
        if client.options.returning is None:
            raise
        note(f"{len(messages)} message(s) were not acknowledged and may come again: {error}")
        return False
    return True
