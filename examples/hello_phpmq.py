"""Publish two messages over PHPMQ and take them.

    python examples/hello_phpmq.py 127.0.0.1:9100

prints

    hello
    world
"""

import os
import sys

from penstock.client import connect

address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_PHPMQ", "127.0.0.1:9100")

with connect(f"phpmq://{address}/hello") as client:
    client.publish("hello", ttl=3600)
    client.publish("world")
    for message in client.consume(idle=1):  # without idle it would wait for more without end
        print(message.text)
        message.ack()
