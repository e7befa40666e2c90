"""Payloads as JSON, text, hex or base64, and back to bytes.

JSON payloads keep their own text except for whitespace between tokens: decoding and encoding them would change digits,
names and order.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from penstock.admin.problems import fail
from penstock.admin.resources.messages import Encoding, Payload


def render(data: bytes, most: int, encoding: Encoding | None) -> Payload:
    """The first ``most`` bytes in this encoding, or in the best one. Invalid JSON is rendered as text or hex."""
    part = data[:most]
    truncated = len(part) < len(data)
    if encoding in (None, "json") and not truncated and (encoding or data[:1] in (b"{", b"[", b'"')):
        text = _json(data)
        if text is not None:
            return Payload(size=len(data), encoding="json", value=msgspec.Raw(text), truncated=False)
    best = _best(part, truncated=truncated) if encoding in (None, "json") else encoding
    value = msgspec.Raw(msgspec.json.encode(_encoded(part, best)))
    return Payload(size=len(data), encoding=best, value=value, truncated=truncated)


def _best(part: bytes, *, truncated: bool) -> Encoding:
    text = part.decode("utf-8", "ignore")
    cut = len(part) - len(text.encode())  # a character may be cut in two at the end
    return "text" if cut <= (3 if truncated else 0) and _printable(text) else "hex"


def _printable(text: str) -> bool:
    return all(each.isprintable() or each in "\n\r\t" for each in text)


def _encoded(part: bytes, encoding: Encoding) -> str:
    if encoding == "text":
        return part.decode("utf-8", "replace")
    return part.hex() if encoding == "hex" else base64.b64encode(part).decode()


def _json(data: bytes) -> bytes | None:
    """The JSON text on one line. None if it is invalid or hard for clients to parse: huge numbers, deep nesting."""
    try:
        msgspec.json.decode(data)
        return msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def parse_payload(value: msgspec.Raw, encoding: Encoding, field: str) -> bytes:
    """The bytes of a payload in a request. Raises ApiProblem."""
    try:
        if encoding == "json":
            bytes(value).decode()
            return msgspec.json.format(bytes(value), indent=-1)
        text = msgspec.json.decode(value, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fail(
            "bad-request",
            f"a payload in {encoding} must be {'valid JSON' if encoding == 'json' else 'a string'}: {error}",
            field=field,
        )
    try:
        if encoding == "text":
            return text.encode()
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        fail("bad-request", f"the payload is not valid {encoding}", field=field)
