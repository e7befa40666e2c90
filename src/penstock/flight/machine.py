"""Identifies the machine: processes with the same answer share a kernel, and may see the same files."""

from __future__ import annotations

from pathlib import Path

#: Drawn by the kernel when it boots, and not known outside of the machine.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """The kernel's boot ID; empty if it is not available."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
