"""File descriptors: enough for all connections, and some that connections never get."""

from __future__ import annotations

import resource

#: File descriptors that are not for connections: the journal would take a failure to open a file for the disk's.
RESERVED = 100


def connections_with_descriptors(wanted: int) -> int:
    """Raise the process's limit of file descriptors as far as needed, and return how many connections it allows."""
    return min(wanted, _descriptors(wanted + RESERVED) - RESERVED)


def _descriptors(wanted: int) -> int:
    """How many file descriptors the process may have, once it has asked for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, wanted)
    wanted = min(hard, wanted)
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        return wanted
    return soft if soft >= 0 else hard
