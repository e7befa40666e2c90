"""A message that keeps failing becomes a dead letter, which can be inspected.

    python examples/dead_letters.py 127.0.0.1:8888

prints

    attempt 1: 1 retries left
    attempt 2: 0 retries left
    dead: poison
"""

import os
import sys

from penstock.client import connect

address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_SSPQ", "127.0.0.1:8888")
url = f"sspq://{address}"

with connect(url) as client:
    client.publish("poison", retries=1)

for attempt in (1, 2):
    with connect(url) as client:
        message = client.receive(timeout=5)
        assert message is not None
        print(f"attempt {attempt}: {message.retries} retries left")
        # The work fails: the connection ends without an acknowledgement.

with connect(url) as client:
    for message in client.dead_letters(idle=1):
        print("dead:", message.text)
        message.ack()  # gone for good
