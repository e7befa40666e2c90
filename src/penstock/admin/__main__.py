"""``python -m penstock.admin``: the HTTP process, as `penstock serve` starts it. See ``settings``."""

from __future__ import annotations

import sys

from penstock.admin.http_process import main

if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
