"""How the C library's allocator gives memory back to the system.

By itself glibc raises the size from which a block gets pages of its own, up to 32 MiB, as soon as such a block is freed
once. From then on large payloads and tables lie between small objects, and what is freed there stays with the process.
Setting the thresholds keeps them where they are: large blocks go back when they are freed, and so does the end of the
heap. What is free in its middle goes back when somebody asks for that. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import platform

#: Blocks from this size on have pages of their own. Reads, and most blocks of the journal, are smaller and stay cheap.
MMAP_BYTES = 512 * 1024
#: So much may be free at the end of the heap before it is given back.
TRIM_BYTES = 4 * 1024 * 1024

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_memory_back() -> bool:
    """Set the thresholds for this process. False: it is not glibc's allocator, and stays as it is."""
    libc = _glibc()
    return libc is not None and bool(
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES) and libc.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
    )


def trim_heap() -> bool:
    """Give free pages back now, wherever they are. It takes milliseconds: call it in a thread, after much was freed.

    Returns whether there were any; False with another allocator.
    """
    libc = _glibc()
    return libc is not None and bool(libc.malloc_trim(0))


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
