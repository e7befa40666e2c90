"""Hide passwords in URLs among the command's own arguments, which other users of the machine can see.

``ps`` reads the arguments from the process's memory, so that memory is overwritten. They are visible for a moment
before: better keep passwords out of commands.
"""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from pathlib import Path

#: A URL of a database; its password, in front of its last @ or as a parameter.
_URL = re.compile(rb"postgres(?:ql)?:[^\0]*", re.IGNORECASE)
_PASSWORDS = (
    re.compile(rb"^postgres(?:ql)?:/{0,2}[^:@/]*:(.*)@", re.IGNORECASE),
    re.compile(rb"[?&](?:ssl)?password=([^&#]*)"),
)
#: Fields of /proc/self/stat behind the name: where the arguments begin and end in memory.
_BEGIN, _END = 45, 46


def hide_passwords() -> None:
    """Overwrite the passwords, on systems that report where the arguments are."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_BEGIN]), int(fields[_END])
        arguments = ctypes.string_at(start, end - start)
        for first, last in _spans(arguments):
            ctypes.memset(start + first, ord("*"), last - first)


def _spans(arguments: bytes) -> list[tuple[int, int]]:
    """Where passwords are in zero-terminated arguments."""
    found = []
    for url in _URL.finditer(arguments):
        for password in _PASSWORDS:
            found += [(url.start() + each.start(1), url.start() + each.end(1)) for each in password.finditer(url[0])]
    return found
