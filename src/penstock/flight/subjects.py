"""The subject of a certificate, as access rules mean it: the same over Flight and over all other protocols.

It is the first subject alternative name, or the common name (the first, if there are several) of a certificate that
has no alternative name. Of alternative names, those of hosts (DNS), addresses (IP), mail and URIs count; a certificate
whose first one is of another kind has no subject. That is what gRPC tells of a client, and it tells nothing else.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

#: What gRPC says instead of an alternative name of a kind that it does not know.
_OTHER_KIND = "other types of SAN"
_KINDS = ("DNS", "IP Address", "email", "URI")


def subject_of_identity(identity: bytes) -> str:
    """The subject in what gRPC calls a peer's identity; empty if there is none."""
    found = identity.decode("utf-8", "replace")
    return "" if found == _OTHER_KIND else found


def subject_of_certificate(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate as the module ssl describes it (``getpeercert``); empty if there is none."""
    names = certificate.get("subjectAltName", ())
    if not names:
        return common_name_of(certificate)
    kind, name = names[0]
    if kind not in _KINDS:
        return ""
    return _plain_address(name) if kind == "IP Address" else str(name)


def common_name_of(certificate: Mapping[str, Any]) -> str:
    """The first common name; empty if there is none."""
    names = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    return str(next(names, ""))


def _plain_address(text: str) -> str:
    """As the system writes it: the module ssl has FD00:0:0:0:0:0:0:1 where all others have fd00::1."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return ""
    return socket.inet_ntop(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed)
