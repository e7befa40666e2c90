"""Publish two messages over SSPQ and take them. The listener's configuration names the queue.

    python examples/hello_sspq.py 127.0.0.1:8888

prints

    hello, 3 retries left
    world, 255 retries left
"""

import os
import sys

from penstock.client import connect

address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_SSPQ", "127.0.0.1:8888")

with connect(f"sspq://{address}") as client:
    client.publish("hello", retries=3)
    client.publish("world")  # 255 retries: unlimited
    for message in client.consume(idle=1):
        print(f"{message.text}, {message.retries} retries left")
        message.ack()
