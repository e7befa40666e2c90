"""The command: ``scripts/bench-peers``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from benches.peers import table
from benches.peers.contestants import BY_KEY
from benches.peers.generator import GeneratorError
from benches.peers.sitting import Plan, Sitting
from benches.peers.workloads import GROUPS

#: Messages that wait, in the rows about that.
WAITING = 2_000_000
EPILOG = """examples:
  scripts/bench-peers                                   everything
  scripts/bench-peers --quick                           a look: one short round
  scripts/bench-peers --only flow --only kokaq --only redis-stream --rounds 5
"""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: all was measured; 1: something failed; 2: wrong use; 130: Ctrl-C."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    sitting = Sitting(_plan(options), _progress())
    try:
        findings = sitting.run()
    except GeneratorError as error:
        sys.stderr.write(f"scripts/bench-peers: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nscripts/bench-peers: interrupted; servers are stopped, their folders removed\n")
        return 130
    shown = json.dumps(table.as_json(findings)) if options.json else table.text(findings, sitting.plan.groups)
    sys.stdout.write(shown + "\n")
    return 1 if findings.failures else 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _progress() -> Callable[[str], None]:
    """One line that changes on a terminal; else a line for each step."""
    if sys.stderr.isatty():
        return lambda text: void(sys.stderr.write(f"\r\x1b[K{text}"))
    return lambda text: void(sys.stderr.write(f"{text}\n"))


def void(_: object) -> None:
    sys.stderr.flush()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-peers",
        description="Measure Penstock beside other brokers in one sitting.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*(group.key for group in GROUPS), *BY_KEY]
    parser.add_argument("--quick", action="store_true", help="one short round: shows that all runs, not how fast")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}; again for more"
    )
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="how often each is measured (default: 3; quick: 1)")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="of each measurement (default: 1.5; quick: 0.4)")
    parser.add_argument(
        "--folder", type=_folder, metavar="DIR", help="where servers write (default: the temporary one)"
    )
    parser.add_argument("--json", action="store_true", help="every single run, as one value")
    return parser.parse_args(arguments)


def _rounds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.1 to 3600")
    return value


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return Path(text).resolve()


def _plan(options: argparse.Namespace) -> Plan:
    """``--only`` names groups and contestants: of each kind all, if none of it is named."""
    only = options.only or []
    groups = tuple(group for group in GROUPS if group.key in only) or GROUPS
    contestants = frozenset(key for key in BY_KEY if key in only) or frozenset(BY_KEY)
    return Plan(
        rounds=options.rounds or (1 if options.quick else 3),
        seconds=options.seconds or (0.4 if options.quick else 1.5),
        waiting=WAITING // 20 if options.quick else WAITING,
        groups=groups,
        contestants=contestants,
        folder=options.folder,
    )


if __name__ == "__main__":
    sys.exit(main())
