"""The wire benches. Run: .venv/bin/python -m benches.wire"""

from __future__ import annotations

from benches import wire_kokaq, wire_sspq
from benches.measure import report


def main() -> None:
    report("wire: nanoseconds a message, best of many rounds taken in turns", [*wire_sspq.rows(), *wire_kokaq.rows()])


if __name__ == "__main__":
    main()
