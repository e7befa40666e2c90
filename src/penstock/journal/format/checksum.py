"""CRC-32, the journal's checksum. ISA-L works it out at 25 GB/s and zlib at 3: scans and starts are often bound by it.

Both give the same number. Where ISA-L has no wheel, the journal is as good and a little slower.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
