"""Kill pipelines: ``scripts/pipeline-fire --rounds 100``."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from spark.fire.pipelines import PipelineStory
from support.sparks import shared_session
from support.stories import StoryCommand

COMMAND = StoryCommand(
    "scripts/pipeline-fire",
    "Kill pipelines, executors and brokers with SIGKILL while messages flow; then count every message.",
    rounds=100,
    victims="pipelines",
    examples="  scripts/pipeline-fire --rounds 100\n"
    "  scripts/pipeline-fire --seed 7 --rounds 10     the same plan again; the machine's pace differs\n",
    story=10,
)
SHOWN = "pipelines killed: everything was archived, replayed and counted exactly once"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    options = COMMAND.parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-fire-") as folder, shared_session(Path(folder)) as spark:
        return COMMAND.run(partial(PipelineStory, spark=spark), options, lambda _: f"{options.rounds} {SHOWN}")


if __name__ == "__main__":
    sys.exit(main())
