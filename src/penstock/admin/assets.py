"""The console's files: what is served at ``/``, and what browsers may do with it.

All files are read once, into a table by their path: a path that is not in it does not exist, so no path can lead
anywhere else.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parents[1]
#: Where files are served, and where they are.
_FOLDERS = {
    "/": _PACKAGE / "admin" / "console",
    "/charts/": _PACKAGE / "web" / "charts",
    "/vendor/": _PACKAGE / "web" / "vendor",
}
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".LICENSE": "text/plain; charset=utf-8",
}

#: Everything comes from here, and nothing is inline: what a payload or a name contains can not become a script.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)


class Asset(NamedTuple):
    """A file as it is answered. ``etag`` is of its content."""

    media_type: str
    etag: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    """All files of the console, by the path of their address."""
    found = {}
    for prefix, folder in _FOLDERS.items():
        for path in folder.rglob("*"):
            if media_type := _MEDIA_TYPES.get(path.suffix):
                body = path.read_bytes()
                etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
                found[prefix + path.relative_to(folder).as_posix()] = Asset(media_type, etag, body)
    found["/"] = found["/index.html"]
    return found
