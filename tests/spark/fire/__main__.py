"""Kill Spark drivers: ``scripts/spark-fire --rounds 100``. A failure tells its seed, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from spark.fire.killing import Story

#: Rounds of one story. Each story starts with an empty broker and new checkpoints.
STORY = 10


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: everything was there once; 1: not."""
    options = _parse(arguments)
    for number, first in enumerate(range(0, options.rounds, STORY)):
        seed = options.seed + number
        folder = Path(tempfile.mkdtemp(prefix="penstock-fire-", dir=options.folder))
        try:
            for told in Story(folder, seed).run(min(STORY, options.rounds - first)):
                sys.stdout.write(f"seed {seed}, {told}\n")
                sys.stdout.flush()
        except Exception:  # whatever went wrong is the finding
            sys.stdout.write(f"seed {seed} failed; its folder is {folder}\nagain: scripts/spark-fire --seed {seed}\n")
            sys.stdout.write(traceback.format_exc())
            return 1
        shutil.rmtree(folder)
    sys.stdout.write(f"{options.rounds} drivers killed: everything was read, copied and consumed exactly once\n")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/spark-fire",
        description="Kill Spark drivers, and brokers, with SIGKILL while messages flow; then count every message.",
        epilog="examples:\n  scripts/spark-fire --rounds 100\n"
        "  scripts/spark-fire --seed 7 --rounds 10     the same plan again; the machine's pace differs\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="how many drivers (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--folder", metavar="DIR", help="where the folders are made (default: the temporary one)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
