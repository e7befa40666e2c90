"""The Python client: one small API for all protocols; the URL says which.

::

    from penstock.client import connect

    with connect("phpmq://127.0.0.1:9100/jobs") as client:
        client.publish(b"hello")

The same names with ``await`` are in :mod:`penstock.client.aio`. User's page: docs/client.md. From the caller down:

* ``sync`` wraps ``aio``, the client. Its vocabulary: ``urls``, ``options``, ``abilities``, ``messages``, ``errors``.
* ``publisher`` and ``consumer`` carry on from one connection to the next, and decide alone what may be sent again.
* ``hosts`` finds the host that serves.
* ``session`` (with ``operations``) is one connection of one protocol: ``phpmq``, ``sspq`` or ``kokaq``. ``protocol``
  describes a protocol to the rest of the client.
* ``connection`` moves bytes. ``close_reasons`` and :mod:`penstock.tls_errors` explain why it ended.
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
