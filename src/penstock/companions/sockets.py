"""Unix-domain sockets as files: permissions, and stale files of earlier processes."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time


def listen_unix(path: str, backlog: int) -> socket.socket:
    """Listen on a socket file that only its user and group may use, from the moment it is created.

    Raises OSError. An existing file is left alone unless it is a socket without a listener.
    """
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o117)
    try:
        listening.setblocking(False)
        listening.bind(path)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def wait_for_path(path: str, seconds: float) -> None:
    """Wait up to ``seconds`` until no process listens on the socket: one that was just killed may still be ending."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path):
                return
        time.sleep(0.05)


def _remove_stale(path: str) -> None:
    """Remove a socket file without a listener: it is left over from a crash."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, f"{path} exists and is not a socket: remove it or use another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, f"another process already listens on {path}")
