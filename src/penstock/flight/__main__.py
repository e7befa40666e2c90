"""``python -m penstock.flight``: the endpoint's process, started by `penstock serve`."""

from __future__ import annotations

import sys

from penstock.flight.flight_process import main

if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
