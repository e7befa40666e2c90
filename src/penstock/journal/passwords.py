"""Hides the passwords in a journal's URL from errors, logs and the displayed configuration."""

from __future__ import annotations

import re

#: Replaces a password. The result is still a URL.
HIDDEN = "***"
#: Also matches invalid URLs: with an unescaped slash or @ in the password, or without slashes after the scheme.
_USER = re.compile(r"((?:[a-z][a-z0-9+.-]*://|postgres(?:ql)?:/?)[^:@/\s]*):(\S*)@", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)([^&#\s]*)", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", _USER.sub(rf"\g<1>:{HIDDEN}@", text))
