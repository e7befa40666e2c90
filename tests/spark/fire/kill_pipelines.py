"""Kill pipelines: ``scripts/pipeline-fire --rounds 100``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from spark.fire.command import Command
from spark.fire.pipelines import PipelineStory
from support.sparks import shared_session

COMMAND = Command(
    "scripts/pipeline-fire",
    "Kill pipelines, executors and brokers with SIGKILL while messages flow; then count every message.",
    "pipelines",
    "everything was archived, replayed and counted exactly once",
)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    options = COMMAND.parse(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-fire-") as folder, shared_session(Path(folder)) as spark:
        return COMMAND.run(lambda place, seed: PipelineStory(place, seed, spark), options)


if __name__ == "__main__":
    sys.exit(main())
