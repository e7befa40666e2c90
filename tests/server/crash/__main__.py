"""Kill brokers: ``scripts/crash --rounds 1000``. A failure tells its seed and round, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from server.crash.killing import Round, Story

#: Rounds in one folder: enough for checkpoints, retention and compaction to have happened.
STORY = 25
DURABILITIES = ("commit", "interval", "os")


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all promises kept; 1: a round failed."""
    options = _parse(arguments)
    out = sys.stdout.write
    rounds: list[Round] = []
    began = time.monotonic()
    for number, first in enumerate(range(0, options.rounds, STORY)):
        seed = options.seed + number
        durability = options.durability or DURABILITIES[max(seed % 4 - 1, 0)]  # half of them commit
        folder = Path(tempfile.mkdtemp(prefix="penstock-crash-", dir=options.folder))
        story = Story(folder, seed, durability)
        try:
            for each in story.run(min(STORY, options.rounds - first)):
                rounds.append(each)
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{len(rounds):,} of {options.rounds:,} rounds ")
        except Exception:  # whatever went wrong is the finding
            out(f"\nseed {seed}, round {story.round}, {durability} failed; its folder is {folder}\n")
            out(f"again: scripts/crash --seed {seed} --rounds {STORY} --durability {durability}\n")
            out(traceback.format_exc())
            return 1
        out(
            f"seed {seed}, {durability}: {story.round} rounds; {len(story.confirmed):,} publishes and "
            f"{len(story.settled):,} ends confirmed\n"
        )
        sys.stdout.flush()
        shutil.rmtree(folder)
    out(_sum(rounds, time.monotonic() - began))
    return 0


def _sum(rounds: list[Round], seconds: float) -> str:
    return (
        f"{len(rounds):,} brokers killed in {seconds:.0f} s, {sum(not each.started for each in rounds):,} of them "
        f"while they started; {sum(each.checkpoint for each in rounds):,} left a checkpoint, "
        f"{sum(each.trimmed for each in rounds):,} a trimmed journal, "
        f"{sum(each.carried > 0 for each in rounds):,} carried messages: all promises kept\n"
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/crash",
        description="Kill real brokers under load with SIGKILL, and check after each what it had promised.",
        epilog="examples:\n  scripts/crash --rounds 1000\n  scripts/crash --durability os --rounds 100\n"
        "  scripts/crash --seed 4711 --rounds 25     the same traffic again; the moments of the kills differ\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="how many kills (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--durability", choices=DURABILITIES, help="only this one (default: all, half of them commit)")
    parser.add_argument("--folder", metavar="DIR", help="where the data folders are made (default: the temporary one)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
