"""The command: ``scripts/bench-peers``."""

from __future__ import annotations

import json
import signal
import sys

from benches.peers import arguments, page, table
from benches.peers.generator import GeneratorError
from benches.peers.sitting import Sitting


def main(given: list[str] | None = None) -> int:
    """Exit code 0: all was measured; 1: something failed; 2: wrong use; 130: Ctrl-C."""
    options = arguments.parsed(given)
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell starts what is in the background with SIGINT ignored
        signal.signal(number, _interrupt)
    sitting = Sitting(arguments.plan(options), _progress)
    try:
        findings = sitting.run()
    except GeneratorError as error:
        sys.stderr.write(f"scripts/bench-peers: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nscripts/bench-peers: interrupted; servers are stopped, their folders removed\n")
        return 130
    if (target := arguments.page(options)) is not None:
        page.write(findings, sitting.plan, target)
    shown = json.dumps(table.as_json(findings)) if options.json else table.text(findings, sitting.plan.groups)
    sys.stdout.write(shown + "\n")
    return 1 if findings.failures else 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _progress(text: str) -> None:
    """One line that changes on a terminal; else a line for each step. An empty text clears it."""
    terminal = sys.stderr.isatty()
    if terminal or text:
        sys.stderr.write(f"\r\x1b[K{text}" if terminal else f"{text}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
