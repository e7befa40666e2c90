"""The wire benches. Run: .venv/bin/python -m benches.wire"""

from __future__ import annotations

from benches import wire_kokaq, wire_phpmq, wire_sspq
from benches.measure import report


def main() -> None:
    rows = wire_sspq.rows() + wire_phpmq.rows() + wire_kokaq.rows()
    report("wire: nanoseconds a message, best of many rounds taken in turns", rows)


if __name__ == "__main__":
    main()
