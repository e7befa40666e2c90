"""The subject of a certificate for access rules: the same over Flight and over all other protocols.

It is the first subject alternative name, or the (first) common name of a certificate without alternative names. Only
alternative names for hosts (DNS), addresses (IP), mail and URIs count; a certificate whose first one is of another kind
has no subject. These are gRPC's rules, and it reports nothing else about a client.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

#: What gRPC reports for an alternative name of an unknown kind.
_OTHER_KIND = "other types of SAN"
_KINDS = ("DNS", "IP Address", "email", "URI")


def subject_of_identity(identity: bytes) -> str:
    """The subject from gRPC's peer identity; empty if there is none."""
    text = identity.decode("utf-8", "replace")
    return "" if text == _OTHER_KIND else text


def subject_of_certificate(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate as ``ssl.getpeercert`` describes it; empty if there is none."""
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
    """The address in its usual form: the module ssl writes FD00:0:0:0:0:0:0:1 for fd00::1."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return ""
    return socket.inet_ntop(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed)
