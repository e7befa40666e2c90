"""Publish so that nothing is lost and nothing doubled, whatever happens to the connection.

    python examples/confirmed.py 127.0.0.1:9420

prints

    10000 messages are on the broker's disk
    the queue has 10000 of them
"""

import os
import sys

from penstock.client import Reconnect, Refused, Uncertain, connect

address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_KOKAQ", "127.0.0.1:9420")

# With idempotent=True every message has a request ID, by which the broker detects duplicates. So the client repeats
# messages that were in flight when a connection broke.
url = f"kokaq://{address}/default/confirmed"
with connect(url, reconnect=Reconnect(attempts=10), idempotent=True) as client:
    client.create_queue(exist_ok=True)
    try:
        published = client.publish_many(f"order {number}" for number in range(10_000))
    except Refused as error:
        print(f"refused ({error.reason}): {len(error.messages)} messages; worth a retry: {error.retriable}")
        raise
    except Uncertain as error:
        # Ten attempts in a row have failed. The broker may have these or not; their request IDs make a repetition safe.
        print(f"in doubt: {len(error.messages)} messages")
        raise
    print(f"{published.count} messages are on the broker's disk")
    print(f"the queue has {client.queue_info().depth} of them")
