"""Payloads as people and programs see them: JSON, text, hex or base64, up to a limit; and the way back.

JSON is the payload's own text, without the space between its tokens: a parser would change digits, names and order.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from penstock.admin.problems import fail
from penstock.admin.resources.messages import Encoding, Payload


def shown(data: bytes, most: int, encoding: Encoding | None) -> Payload:
    """The first ``most`` bytes in this encoding, or in the one that fits best; what is no JSON is not shown as JSON."""
    part = data[:most]
    truncated = len(part) < len(data)
    if encoding in (None, "json") and not truncated and (encoding or data[:1] in (b"{", b"[", b'"')):
        text = _json(data)
        if text is not None:
            return Payload(size=len(data), encoding="json", value=msgspec.Raw(text), truncated=False)
    chosen = _best(part, truncated=truncated) if encoding in (None, "json") else encoding
    value = msgspec.Raw(msgspec.json.encode(_encoded(part, chosen)))
    return Payload(size=len(data), encoding=chosen, value=value, truncated=truncated)


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
    """The text on one line, None if it is no JSON.

    What readers of an answer may stumble over is none either: numbers that no double holds, depths that no stack does.
    """
    try:
        msgspec.json.decode(data)
        return msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def data_of(value: msgspec.Raw, encoding: Encoding, field: str) -> bytes:
    """The bytes that a payload means. Raises ApiProblem."""
    try:
        if encoding == "json":
            bytes(value).decode()
            return msgspec.json.format(bytes(value), indent=-1)
        text = msgspec.json.decode(value, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fail("bad-request", f"a payload in {encoding} is {_WANTED.get(encoding, 'a string')}: {error}", field=field)
    try:
        if encoding == "text":
            return text.encode()
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        fail("bad-request", f"the payload is not {encoding}", field=field)


_WANTED = {"json": "a value of JSON"}
