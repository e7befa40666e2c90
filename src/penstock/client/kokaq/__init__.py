"""Kokaq on the client's side.

* ``session`` is a connection: requests, publishing, locks. ``requests`` are those that wait for their answers.
* ``lock_source`` consumes by locking; ``administration`` looks at messages, queues and the broker; ``answers`` reads
  what comes back.
"""

from penstock.client.kokaq.session import CLIENT, KokaqClientSession

__all__ = ["CLIENT", "KokaqClientSession"]
