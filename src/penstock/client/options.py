"""Options of a client beyond its address."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from typing import TypedDict

from msgspec import Struct

from penstock.client.errors import BadURL

#: Bytes that a client accepts in one message.
DEFAULT_MAX_MESSAGE = 16 * 2**20


class TLS(Struct, frozen=True, kw_only=True):
    """Trust and client certificates. Files are PEM.

    Without ``ca`` the system trust store is used. ``server_name`` is checked against the certificate instead of the
    URL's host; with several hosts it is one name for all, or one each, separated by commas. Verification can't be
    skipped: pass a self-signed certificate as ``ca``.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises :class:`BadURL` if one is unusable."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        except (OSError, ssl.SSLError) as error:
            raise BadURL(f"unusable TLS files ({self.ca}): {error}") from error
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            key = self.key or "its key in the same file"
            raise BadURL(f"unusable TLS files ({self.cert}, {key}): {error}") from error
        return context


class Reconnect(Struct, frozen=True, kw_only=True):
    """Exponential backoff after a lost connection: pauses in seconds double from ``first`` to ``most``.

    Each pause is shortened by up to half at random, so that a hundred clients don't return at once. After ``attempts``
    failures in a row (None: never) the last error is raised.
    """

    first: float = 0.1
    most: float = 10.0
    attempts: int | None = None

    def pauses(self) -> Iterator[float]:
        """The pause before each attempt; the first is 0."""
        pause = self.first
        yield 0.0
        tried = 1
        while self.attempts is None or tried < self.attempts:
            yield pause * random.uniform(0.5, 1.0)
            pause = min(2 * pause, self.most)
            tried += 1


#: For URLs with several hosts. One of them takes over within seconds, so pauses stay short.
SEVERAL_HOSTS = Reconnect(most=1.0)


class ClientSettings(TypedDict, total=False):
    """The options of ``connect``. The URL's query takes them too; an argument overrides the URL."""

    connect_timeout: float
    timeout: float
    reconnect: bool | Reconnect
    idempotent: bool
    max_message: int
    ask: str
    tls: TLS


class ClientOptions(Struct, frozen=True, kw_only=True):
    """The options of one client.

    ``connect_timeout`` and ``timeout`` are in seconds. ``timeout`` bounds the wait for an answer, or for a broker that
    does not read; it does not limit how long a consumer waits for a message. ``idempotent`` gives each Kokaq push a
    request ID, so that resending it is safe. ``max_message`` is the largest message accepted from the broker.
    ``reconnect`` defaults to on if the URL names several hosts. ``ask`` is a Kokaq URL of the same broker, used to find
    out why it closed a connection.
    """

    connect_timeout: float = 10.0
    timeout: float = 60.0
    reconnect: bool | Reconnect = False
    idempotent: bool = False
    max_message: int = DEFAULT_MAX_MESSAGE
    ask: str | None = None
    tls: TLS = TLS()

    @property
    def returning(self) -> Reconnect | None:
        """How to reconnect, or None if not at all."""
        if isinstance(self.reconnect, Reconnect):
            return self.reconnect
        return Reconnect() if self.reconnect else None
