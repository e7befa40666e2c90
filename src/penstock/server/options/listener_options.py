"""What the options of all listeners share: an address, TLS, a load balancer. Each protocol adds its own.

A module of listener options is read while the configuration's types are made, so it imports nothing of the server but
this module.
"""

from __future__ import annotations

import ipaddress
from typing import ClassVar, NamedTuple

from msgspec import Struct


class ListenAddress(NamedTuple):
    """Where a listener listens: a host and port, or the path of a Unix-domain socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """From ``host:port``, ``[ipv6]:port`` or ``unix:PATH``. Raises ValueError with what would be right."""
        if text.startswith("unix:"):
            if not text[5:]:
                raise ValueError("unix: is followed by the path of the socket, as in unix:/run/penstock/phpmq.sock")
            return cls(path=text[5:])
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(
                f"{text!r} is not an address: it is host:port (port 0 = a free one), [ipv6]:port or unix:PATH"
            )
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class OptionError(ValueError):
    """A value that its type allows and its neighbours don't.

    ``path`` is the option's, seen from the table at hand: its key, or the keys and indices that lead to it.
    """

    def __init__(self, path: str | tuple[str | int, ...], text: str) -> None:
        super().__init__(text)
        self.path = (path,) if isinstance(path, str) else path


def check_networks(option: str, networks: list[str]) -> None:
    """Raises OptionError for the first that is no address and no network."""
    for index, each in enumerate(networks):
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise OptionError((option, index), f"{error}; it is as in 10.0.0.5 or 10.0.0.0/8") from None


class OptionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An options table: keyword only, and a key that is not known is an error."""


class ListenOptions(OptionTable, frozen=True, kw_only=True):
    """What everything has that listens: an address, and TLS."""

    address: str
    #: PEM files. With a certificate, the listener speaks TLS; with a client CA, clients must show a certificate of it.
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""

    #: An option as it follows the address, for errors that show how.
    example: ClassVar[str] = "tls_certificate=cert.pem"

    def __post_init__(self) -> None:
        try:
            ListenAddress.parse(self.address)
        except ValueError as error:
            raise OptionError("address", str(error)) from None
        if (self.tls_key or self.tls_client_ca) and not self.tls_certificate:
            raise ValueError("tls_key and tls_client_ca need a tls_certificate")


class Listener(ListenOptions, frozen=True, kw_only=True):
    """What the listeners of all protocols have."""

    #: Every connection begins with a header of the PROXY protocol, version 2, which says whose it is.
    proxy_protocol: bool = False
    #: Addresses and networks that such headers are taken from; empty: from whoever connects.
    proxy_from: list[str] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.proxy_from:
            return
        if not self.proxy_protocol:
            raise OptionError("proxy_from", "it says whose PROXY headers are taken, and proxy_protocol is not on")
        if ListenAddress.parse(self.address).path:
            reason = (
                "over a Unix-domain socket nobody has an address: the permissions of its folder say who may connect"
            )
            raise OptionError("proxy_from", reason)
        check_networks("proxy_from", self.proxy_from)

    def namespaces(self) -> list[str]:
        """Namespaces that the listener needs from the start."""
        return []

    def queues(self) -> dict[str, bool]:
        """Queues that the listener needs from the start, as namespace/name, and whether each keeps dead letters."""
        return {}
