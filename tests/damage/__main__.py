"""Run the whole matrix of damages, pairs included: ``scripts/damage``. What fails is named, and replays by its name."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterator

from damage.journal import pristine
from damage.matrix import check, damages, pairs


def cases(*, clean: bool, every: int = 1) -> Iterator[str]:
    """The names of all damages alone, then of pairs: all of them, or every so many."""
    before = pristine(clean=clean)
    yield from (each.name for each in damages(before))
    for number, pair in enumerate(pairs(before)):
        if number % every == 0:
            yield " + ".join(each.name for each in pair)


def run(name: str, *, clean: bool) -> None:
    """One case, by its name. Raises what is wrong."""
    before = pristine(clean=clean)
    known = {each.name: each for each in damages(before)}
    check(before, [known[part] for part in name.split(" + ")])


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all as it must be; 1: something is not."""
    parser = argparse.ArgumentParser(prog="scripts/damage", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of pairs, only every so many")
    parser.add_argument("--case", help="one case, by its name")
    options = parser.parse_args(arguments)
    count = failed = 0
    for clean in (True, False):
        for name in [options.case] if options.case else cases(clean=clean, every=options.every):
            count += 1
            try:
                run(name, clean=clean)
            except Exception:  # whatever went wrong is the finding
                failed += 1
                left = "after a clean stop" if clean else "after kill -9"
                sys.stdout.write(f"{name}, {left}:\n{traceback.format_exc()}\n")
    sys.stdout.write(f"{count:,} damages, {failed:,} of them not as it must be\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
