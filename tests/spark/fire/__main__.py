"""Kill Spark drivers: ``scripts/spark-fire --rounds 100``."""

from __future__ import annotations

import sys

from spark.fire.killing import Story
from support.stories import StoryCommand

COMMAND = StoryCommand(
    "scripts/spark-fire",
    "Kill Spark drivers, executors and brokers with SIGKILL while messages flow; then count every message.",
    rounds=100,
    victims="drivers",
    examples="  scripts/spark-fire --rounds 100\n"
    "  scripts/spark-fire --seed 7 --rounds 10     the same plan again; the machine's pace differs\n",
    story=10,
)
SHOWN = "drivers killed: everything was read, copied and consumed exactly once"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    options = COMMAND.parser().parse_args(arguments)
    return COMMAND.run(Story, options, lambda _: f"{options.rounds} {SHOWN}")


if __name__ == "__main__":
    sys.exit(main())
