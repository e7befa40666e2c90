"""The checksum is CRC-32 with every library, because other machines read journals."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.format.checksum import crc32


@given(st.binary(max_size=10_000), st.integers(0, 10_000))
def test_it_equals_the_crc_of_zlib(data: bytes, cut: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
    assert crc32(memoryview(data)) == zlib.crc32(data)
