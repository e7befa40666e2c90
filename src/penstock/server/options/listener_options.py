"""Options of all listeners: an address, TLS, a load balancer. Each protocol adds its own.

Modules of listener options are imported while the configuration's types are built. Of the server they import only this
module.
"""

from __future__ import annotations

import ipaddress
from typing import ClassVar, NamedTuple

from msgspec import Struct


class ListenAddress(NamedTuple):
    """The address of a listener: a host and port, or the path of a Unix-domain socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Parse ``host:port``, ``[ipv6]:port`` or ``unix:PATH``. Raises ValueError with the right form."""
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
    """A value that its type allows, but other options don't.

    ``path`` leads from the table that raises it to the option: a key, or keys and indices.
    """

    def __init__(self, path: str | tuple[str | int, ...], text: str) -> None:
        super().__init__(text)
        self.path = (path,) if isinstance(path, str) else path


def check_networks(option: str, networks: list[str]) -> None:
    """Raises OptionError for the first text that is neither an address nor a network."""
    for index, each in enumerate(networks):
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise OptionError((option, index), f"{error}; it is as in 10.0.0.5 or 10.0.0.0/8") from None


class OptionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of options. Unknown keys are errors."""


class ListenOptions(OptionTable, frozen=True, kw_only=True):
    """Options of all listeners, companion processes included: an address, and TLS."""

    address: str
    #: PEM files. With a certificate the listener speaks TLS; with a client CA, clients need a certificate signed by it.
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""

    #: An example of an option after the address, for errors.
    example: ClassVar[str] = "tls_certificate=cert.pem"

    def __post_init__(self) -> None:
        try:
            ListenAddress.parse(self.address)
        except ValueError as error:
            raise OptionError("address", str(error)) from None
        if (self.tls_key or self.tls_client_ca) and not self.tls_certificate:
            raise ValueError("tls_key and tls_client_ca need a tls_certificate")


class Listener(ListenOptions, frozen=True, kw_only=True):
    """Options of the listeners of all protocols."""

    #: Every connection begins with a header of the PROXY protocol, version 2, with the client's address.
    proxy_protocol: bool = False
    #: Addresses and networks of trusted load balancers; empty: all.
    proxy_from: list[str] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.proxy_from:
            return
        if not self.proxy_protocol:
            raise OptionError("proxy_from", "proxy_from limits who may send PROXY headers, and proxy_protocol is off")
        if ListenAddress.parse(self.address).path:
            reason = "peers of a Unix-domain socket have no address: limit them by the permissions of its folder"
            raise OptionError("proxy_from", reason)
        check_networks("proxy_from", self.proxy_from)

    def namespaces(self) -> list[str]:
        """Namespaces that the listener needs from the start."""
        return []

    def queues(self) -> dict[str, bool]:
        """Queues that the listener needs from the start, as namespace/name, and whether each keeps dead letters."""
        return {}
