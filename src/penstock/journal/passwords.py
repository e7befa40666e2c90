"""Keeping the password in a journal's URL out of what people see: errors, logs, the configuration as it is shown."""

from __future__ import annotations

import re

#: What stands for a password. As a URL it is still one.
HIDDEN = "***"
#: Also where it is no URL yet: one that has a slash or an @ which had to be escaped, or that lacks its slashes.
_USER = re.compile(r"((?:[a-z][a-z0-9+.-]*://|postgres(?:ql)?:/?)[^:@/\s]*):(\S*)@", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)([^&#\s]*)", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", _USER.sub(rf"\g<1>:{HIDDEN}@", text))
