"""Publish two messages over Kokaq, look at the queue, and take them. Everything is confirmed.

    python examples/hello_kokaq.py 127.0.0.1:9420

prints

    2 messages are waiting
    urgent (priority 9)
    hello (priority 0)
"""

import os
import sys

from penstock.client import connect

address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_KOKAQ", "127.0.0.1:9420")

with connect(f"kokaq://{address}/default/hello-kokaq") as client:
    client.create_queue(exist_ok=True)
    published = client.publish("hello")
    assert published.confirmed  # on the broker's disk, with published.id
    client.publish("urgent", priority=9)
    print(client.queue_info().depth, "messages are waiting")
    for message in client.consume(idle=1):
        print(f"{message.text} (priority {message.priority})")
        message.ack()
