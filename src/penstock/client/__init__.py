"""The Python client: one small API for all protocols; the URL says which.

::

    from penstock.client import connect

    with connect("phpmq://127.0.0.1:9100/jobs") as client:
        client.publish(b"hello")

The same names with ``await`` are in :mod:`penstock.client.aio`. The page is docs/client.md. Inside:

* ``urls``, ``options``, ``abilities`` and ``errors`` are what a caller says and hears; ``messages`` what is exchanged.
* ``protocol`` is what must be known of a protocol; ``connection`` is one connection; ``session``, with ``operations``,
  is what a protocol makes of it, and ``phpmq``, ``sspq`` and ``kokaq`` are those that come with it.
* ``hosts`` finds the one that serves; ``publisher`` and ``consumer`` go on from one connection to the next. ``aio`` is
  the client, ``sync`` the same client for code without an event loop. ``close_reasons`` and ``tls_errors`` find words
  for what went wrong.
"""

from penstock.client import aio
from penstock.client.errors import (
    BadURL,
    Busy,
    ClientError,
    Closed,
    ConnectFailed,
    Disconnected,
    NoMessage,
    NotHeld,
    ProtocolProblem,
    Refused,
    TimedOut,
    Uncertain,
    Unsupported,
)
from penstock.client.messages import Outgoing, Published, QueueInfo, Received
from penstock.client.options import TLS, Reconnect
from penstock.client.sync import Client, Message, connect

__all__ = [
    "TLS",
    "BadURL",
    "Busy",
    "Client",
    "ClientError",
    "Closed",
    "ConnectFailed",
    "Disconnected",
    "Message",
    "NoMessage",
    "NotHeld",
    "Outgoing",
    "ProtocolProblem",
    "Published",
    "QueueInfo",
    "Received",
    "Reconnect",
    "Refused",
    "TimedOut",
    "Uncertain",
    "Unsupported",
    "aio",
    "connect",
]
