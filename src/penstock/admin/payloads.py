"""Payloads as people and programs see them: JSON, text, hex or base64, up to a limit; and the way back."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from penstock.admin.problems import fail
from penstock.admin.resources.messages import Encoding, Payload


def shown(data: bytes, most: int, encoding: Encoding | None) -> Payload:
    """The first ``most`` bytes in this encoding, or in the one that fits best."""
    part = data[:most]
    chosen = encoding or _best(data, part)
    if chosen == "json":
        value = _json(data) if len(part) == len(data) else None
        if value is None and len(data):
            chosen = "text" if encoding is None else "json"
        if chosen == "json":
            return Payload(size=len(data), encoding="json", value=value, truncated=len(part) < len(data))
    return Payload(size=len(data), encoding=chosen, value=_encoded(part, chosen), truncated=len(part) < len(data))


def _best(data: bytes, part: bytes) -> Encoding:
    if len(part) == len(data) and data[:1] in (b"{", b"[", b'"') and _json(data) is not None:
        return "json"
    text = part.decode("utf-8", "ignore")
    cut = len(part) - len(text.encode())  # a character may be cut in two at the end
    return "text" if cut <= (3 if len(part) < len(data) else 0) and _printable(text) else "hex"


def _printable(text: str) -> bool:
    return all(each.isprintable() or each in "\n\r\t" for each in text)


def _encoded(part: bytes, encoding: Encoding) -> str:
    if encoding == "text":
        return part.decode("utf-8", "replace")
    return part.hex() if encoding == "hex" else base64.b64encode(part).decode()


def _json(data: bytes) -> Any:
    """The value, None if it is no JSON. What is too deep, or has numbers that JSON can't have, is none either."""
    try:
        value = msgspec.json.decode(data)
        msgspec.json.encode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return value


def data_of(value: Any, encoding: Encoding, field: str) -> bytes:
    """The bytes that a payload means. Raises ApiProblem."""
    if encoding == "json":
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        fail("bad-request", f"a payload in {encoding} is a string, not {type(value).__name__}", field=field)
    try:
        if encoding == "text":
            return value.encode()
        return bytes.fromhex(value) if encoding == "hex" else base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        fail("bad-request", f"the payload is not {encoding}", field=field)
