"""The formats in which messages are printed."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from msgspec.structs import asdict

from penstock.cli.output import escape
from penstock.client import Received

FORMATS = ("auto", "raw", "escaped", "json")


def written(form: str, message: Received) -> bytes:
    """A message as bytes for standard output, with a line end."""
    if form == "raw":
        return message.body + b"\n"
    if form == "json":
        return json.dumps(facts(message)).encode() + b"\n"
    return escape(message.body).encode(errors="backslashreplace") + b"\n"


def facts(message: Received) -> dict[str, Any]:
    """The properties of a message, for JSON. A body that is not UTF-8 is in ``body_base64``."""
    known = {name: value for name, value in asdict(message).items() if value is not None and name != "hold"}
    body = known.pop("body")
    try:
        known["body"] = body.decode()
    except UnicodeDecodeError:
        known["body_base64"] = base64.b64encode(body).decode()
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in known.items()}


def file_name(number: int, message: Received) -> str:
    """The file name of a message: its number and, if valid, its ID."""
    good = message.id is not None and re.fullmatch(r"[0-9a-f]{32}", message.id)
    return f"{number:06}-{message.id}.bin" if good else f"{number:06}.bin"
