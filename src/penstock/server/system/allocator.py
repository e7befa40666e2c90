"""Returning freed memory to the system from glibc's allocator.

By default, glibc raises the size from which a block gets its own pages, up to 32 MiB, once such a block is freed. Then
large payloads and tables lie between small objects, and their memory stays with the process. Fixed thresholds prevent
that: large blocks, and the end of the heap, are returned when they are freed; free pages in the middle of the heap by
``trim_heap``. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import platform

#: Blocks from this size on get their own pages. Reads, and most blocks of the journal, are smaller and stay cheap.
MMAP_BYTES = 512 * 1024
#: Free bytes at the end of the heap from which they are returned.
TRIM_BYTES = 4 * 1024 * 1024

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def return_freed_memory() -> bool:
    """Fix the thresholds for this process. False: another allocator."""
    libc = _glibc()
    return libc is not None and bool(
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES) and libc.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
    )


def trim_heap() -> bool:
    """Return all free pages. It takes milliseconds: call it in a thread, after much was freed.

    Returns whether there were any; False with another allocator.
    """
    libc = _glibc()
    return libc is not None and bool(libc.malloc_trim(0))


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
