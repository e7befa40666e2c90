"""A worker that lives through restarts of the broker: done, try again later, or give up on a message.

    python examples/worker.py 127.0.0.1:9100

prints

    added up: 7
    not now: come back
    added up: 11
    makes no sense: two and two
    come back, as asked
"""

import asyncio
import os
import sys
from contextlib import suppress

from penstock.client import NotHeld, aio

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_PHPMQ", "127.0.0.1:9100")


async def work(message: aio.Message, seen: set[str | None]) -> None:
    """Settle the message in one of three ways."""
    if message.text == "come back" and message.id not in seen:
        seen.add(message.id)
        print("not now:", message.text)
        await message.requeue(ttl=3600)  # to the end of the queue
    elif message.text == "come back":
        print("come back, as asked")
        await message.ack()
    else:
        try:
            total = sum(map(int, message.text.split("+")))
        except ValueError:
            print("makes no sense:", message.text)
            await message.reject()  # to the dead letters
        else:
            print("added up:", total)
            await message.ack()


async def main() -> None:
    """Fill the queue, and work on it."""
    async with aio.connect(f"phpmq://{ADDRESS}/sums", reconnect=True) as client:
        await client.publish_many(["3+4", "come back", "5+6", "two and two"])
        seen: set[str | None] = set()
        async for message in client.consume(window=10, idle=1):
            # If the connection is lost meanwhile, the message can't be settled: the broker gives it out again.
            with suppress(NotHeld):
                await work(message, seen)


asyncio.run(main())
