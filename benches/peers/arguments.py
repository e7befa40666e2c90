"""The arguments of the command, and the plan that they make."""

from __future__ import annotations

import argparse
from pathlib import Path

from benches.peers.contestants import BY_KEY
from benches.peers.sitting import Plan
from benches.peers.workloads import GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
#: The name of the rows about messages that wait, which are no group of runs.
BACKLOG = "waiting"
#: How much by default, and with --quick.
ROUNDS, QUICK_ROUNDS = 3, 1
SECONDS, QUICK_SECONDS = 1.0, 0.3
WAITING, QUICK_WAITING = 2_000_000, 20_000
NAMES = (*(group.key for group in GROUPS), BACKLOG, *BY_KEY)
EPILOG = f"""NAME is a group of rows or a contestant; all of a kind are measured unless one is named:
  {", ".join(NAMES[: len(GROUPS) + 1])};
  {", ".join(list(BY_KEY)[:10])},
  {", ".join(list(BY_KEY)[10:])}

examples:
  scripts/bench-peers                                   everything; writes docs/benchmarks.md
  scripts/bench-peers --quick                           a trial: one short round
  scripts/bench-peers --only flow --only kokaq --only redis-stream --rounds 5
  scripts/bench-peers --only waiting --waiting 20000000 --rounds 1

exit codes:
  0  all was measured
  1  something failed; the last lines and the page list the failures
  2  wrong use
  130  interrupted
"""


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the arguments. Wrong ones end the process."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-peers",
        description="Measure Penstock beside other brokers in one sitting.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round, to see that everything runs")
    add("--only", action="append", type=_name, default=[], metavar="NAME", help="only this; may be repeated")
    add("--rounds", type=_rounds, metavar="N", help=f"rounds of each measurement (default: {ROUNDS})")
    add("--seconds", type=_seconds, metavar="S", help=f"seconds of each measurement (default: {SECONDS:.0f})")
    add("--waiting", type=_waiting, metavar="N", help=f"waiting messages in W4 (default: {WAITING})")
    add("--folder", type=_folder, metavar="DIR", help="where servers write (default: the temporary folder)")
    add(
        "--page",
        type=_page,
        metavar="FILE",
        help="write the page here (default: docs/benchmarks.md if all is measured)",
    )
    add("--json", action="store_true", help="print every single run, as one value")
    return parser.parse_args(arguments)


def plan(options: argparse.Namespace) -> Plan:
    groups = tuple(group for group in GROUPS if group.key in options.only)
    backlog = BACKLOG in options.only or not groups
    quick = options.quick
    return Plan(
        rounds=options.rounds or (QUICK_ROUNDS if quick else ROUNDS),
        seconds=options.seconds or (QUICK_SECONDS if quick else SECONDS),
        waiting=(options.waiting or (QUICK_WAITING if quick else WAITING)) if backlog else 0,
        groups=groups if groups or BACKLOG in options.only else GROUPS,
        contestants=frozenset(set(BY_KEY) & set(options.only)) or frozenset(BY_KEY),
        folder=options.folder,
    )


def page(options: argparse.Namespace) -> Path | None:
    """The file of the page. A partial sitting overwrites the page only if it is named."""
    chosen: Path | None = options.page
    return chosen if chosen or options.quick or options.only else PAGE


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no {text!r}; there are {', '.join(NAMES)}")
    return text


def _rounds(text: str) -> int:
    return _whole(text, 1, 1000)


def _waiting(text: str) -> int:
    return _whole(text, 1000, 100_000_000)


def _whole(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
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


def _page(text: str) -> Path:
    if not Path(text).resolve().parent.is_dir() or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in an existing folder")
    return Path(text).resolve()
