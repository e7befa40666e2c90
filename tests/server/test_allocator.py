"""Freed memory goes back to the system, measured in a separate process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from penstock.server.system import allocator

SCRIPT = """
import sys
from pathlib import Path
from penstock.server.system.allocator import return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "set":
    assert return_freed_memory()
for _ in range(3):
    bytes(4 * 2**20)  # freeing one is what makes the allocator keep later ones
before = resident()
payloads, small = [], []
for number in range(40):
    payloads.append(b"x" * (2 * 2**20 + number))
    small.append(bytes([number]) * 50_000)  # larger than what a start leaves free: each lies behind its payload
del payloads
print(resident() - before - sum(map(len, small)))
"""


HOLES = """
from pathlib import Path
from penstock.server.system.allocator import return_freed_memory, trim_heap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

return_freed_memory()
blocks = [bytes(100_000) for _ in range(400)]
for block in blocks:
    memoryview(block)[::4096].tobytes()
small = blocks[::50]
del blocks, block
before = resident()
assert trim_heap()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is configured")
def test_free_pages_between_used_ones_go_back_on_request() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20 * 2**20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is configured")
def test_large_blocks_go_back() -> None:
    kept = {}
    for how in ("set", "not set"):
        command = [sys.executable, "-c", SCRIPT, how]
        kept[how] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert kept["set"] < 2 * 2**20
    assert kept["not set"] > 40 * 2**20, "the test cannot detect a leak"


def test_other_c_libraries_are_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not allocator.return_freed_memory()
    assert not allocator.trim_heap()
