"""The origin of a request: the client's address behind proxies, the host that it names, and the page that sent it.

A hostile page can make a browser send requests here in two ways. Cross-origin requests are marked by the browser, in
``Sec-Fetch-Site`` and ``Origin``. With DNS rebinding, the page's own host name resolves to our address, so nothing is
cross-origin, but ``Host`` still contains the hostile name. So requests without a token must name a known host.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.admin.problems import fail

#: Ports that browsers omit from ``Host`` and ``Origin``.
_DEFAULT_PORTS = {"http": 80, "https": 443}

Scope = Mapping[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Origin(NamedTuple):
    """Scheme, host and port, in lower case."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Origin | None:
        """None if it is no web origin, such as ``null``."""
        try:
            parts = urlsplit(text)
            port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        except ValueError:
            return None
        return cls(parts.scheme, _plain_host(parts.hostname), port) if parts.hostname and port else None


class Origins:
    """Checks requests against the listener's address and the options of ``HttpListener``."""

    def __init__(
        self,
        address: str,
        *,
        tls: bool,
        public_url: str = "",
        host_names: Sequence[str] = (),
        proxy_from: Sequence[str] = (),
    ) -> None:
        self._tls = tls
        self._public = Origin.parse(public_url)
        self._proxies = [ipaddress.ip_network(each) for each in proxy_from]
        #: With TLS the certificate limits the names; browsers can't reach a Unix-domain socket.
        self._any_host = tls or address.startswith("unix:")
        names = [address.rpartition(":")[0], socket.gethostname(), "localhost", *host_names]
        self._hosts = {_plain_host(name) for name in names} | ({self._public.host} if self._public else set())

    def client_address(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """The client's address: behind our own proxies, the last one in ``X-Forwarded-For`` that is not a proxy."""
        client = scope.get("client")
        if not client:
            return "unix"
        address = str(client[0])
        for each in reversed(headers.get("x-forwarded-for", "").split(",")):
            if not self._is_proxy(address) or (found := _address(each.strip())) is None:
                break
            address = str(found)
        return address

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raises ApiProblem for an unknown host name. Browsers always send one."""
        host = headers.get("host")
        if host is None or self._any_host:
            return
        found = Origin.parse(f"http://{host}")
        name = found.host if found is not None else ""
        if name in self._hosts or name.endswith(".localhost") or _address(name) is not None:
            return
        fail(
            "denied",
            f"{host[:200]!r} is not a known name of this broker: use its address, send a token with the request, "
            "or add the name to host_names of [http], or set public_url",
            field="header.Host",
        )

    def check_page(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Raises ApiProblem for a change that a page of another origin made the browser send."""
        site, sender = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site not in ("same-origin", "none"):
            fail("denied", "changes are not accepted from pages of other origins", field="header.Sec-Fetch-Site")
        if sender is None or site == "same-origin":  # set by the browser; pages can't set this header
            return
        own = Origin.parse(f"{scope['scheme']}://{headers.get('host')}")
        found = Origin.parse(sender)
        if found is None or found not in (own, self._public):
            fail(
                "denied",
                f"changes are not accepted from pages of {sender[:200]}; if browsers reach this broker at that URL, "
                "set public_url of [http] to it",
                field="header.Origin",
            )

    def is_secure(self, headers: Mapping[str, str]) -> bool:
        """Whether the browser reaches us over TLS, so that its cookie can be marked Secure."""
        sender = Origin.parse(headers.get("origin", "")) or self._public
        return self._tls or (sender is not None and sender.scheme == "https")

    def _is_proxy(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._proxies)


def _plain_host(host: str | None) -> str:
    return (host or "").strip("[]").rstrip(".").lower()


def _address(text: str) -> Address | None:
    """An address without its zone, IPv4-mapped ones as IPv4. None if it is not an address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found
