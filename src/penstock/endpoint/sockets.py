"""Unix-domain sockets as files: who may connect, and what lies where they are to be."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time


def listen_unix(path: str, backlog: int) -> socket.socket:
    """A socket file for its user and group. It is made with these rights: nobody else gets in before they are set.

    Raises OSError; what is in the way is left alone, unless it is a socket on which nobody listens.
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
    """Until nobody listens there, or the time is up: who was killed a moment ago may still be about to end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path):
                return
        time.sleep(0.05)


def _remove_stale(path: str) -> None:
    """A socket file that nobody listens on is left over from a crash."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, f"{path} is in the way: it is there and not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, f"somebody listens on {path} already")
