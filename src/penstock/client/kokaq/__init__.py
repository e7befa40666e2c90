"""Kokaq for clients.

* ``session`` is a connection: publishing, locks, settling. ``requests`` tracks requests that await their answers.
* ``lock_source`` consumes by locking. ``administration`` browses and manages. ``answers`` interprets responses.
"""

from penstock.client.kokaq.session import CLIENT, KokaqClientSession

__all__ = ["CLIENT", "KokaqClientSession"]
