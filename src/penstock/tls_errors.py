"""Why a TLS handshake failed, in words, followed by OpenSSL's code."""

from __future__ import annotations

import ssl
from typing import Literal

#: Alerts of the peer. OpenSSL puts a name and a version before these.
_ALERTS = {
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REVOKED": "our certificate was revoked",
    "CERTIFICATE_REQUIRED": "we have to show a certificate",
    "UNKNOWN_CA": "our certificate is of an authority that it does not know",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our certificate",
    "PROTOCOL_VERSION": "it speaks no version of TLS that we speak",
}
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def handshake_reason(error: OSError, other: Literal["broker", "client"]) -> str:
    """Why the handshake with the peer failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the {other}'s certificate is not accepted: {error.verify_message} ({error.reason})"
    code = getattr(error, "reason", None) or ""
    if "ALERT_" in code:
        said = _ALERTS.get(code.partition("ALERT_")[2], "no")
        return f"the {other} says: {said} ({code})"
    if code == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return f"the {other} shows no certificate ({code})"
    if code in _NO_TLS:
        return f"{'there is no TLS at this address' if other == 'broker' else 'what came is not TLS'} ({code})"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError):
        return f"the {other} closed the connection during the handshake" + _guess(other)
    return code or error.strerror or str(error) or type(error).__name__


def _guess(other: str) -> str:
    """The most likely cause: the broker's listener has no TLS, or the client does not trust us."""
    if other == "broker":
        return ": there may be no TLS at this address"
    return ": it may not accept our certificate, or not speak TLS"
