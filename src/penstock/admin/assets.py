"""The files of the console, served at ``/``, and their content security policy.

All files are read once, into a table by path. Paths outside the table do not exist, so no traversal is possible.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parents[1]
#: URL prefixes and their folders.
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

#: Everything is loaded from this origin, and nothing is inline: no payload or name can become a script.
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
    """A file as it is served. ``etag`` is a hash of its content."""

    media_type: str
    etag: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    """All files of the console, by URL path."""
    found = {}
    for prefix, folder in _FOLDERS.items():
        for path in folder.rglob("*"):
            if media_type := _MEDIA_TYPES.get(path.suffix):
                body = path.read_bytes()
                etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
                found[prefix + path.relative_to(folder).as_posix()] = Asset(media_type, etag, body)
    found["/"] = found["/index.html"]
    return found
