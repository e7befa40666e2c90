"""Debian packages that tests need and pip does not provide."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def install(package: str, purpose: str) -> bool:
    """Install a package if this is root and apt-get exists. Returns whether that was tried."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print(f"set-up: installing Debian's {package}, for {purpose}", file=sys.stderr)
    quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run([*quiet, "update"], env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0:
        wanted = [*quiet, "install", "-y", "--no-install-recommends", package]
        subprocess.run(wanted, env=environment, stdout=subprocess.DEVNULL, check=False)
    return True
