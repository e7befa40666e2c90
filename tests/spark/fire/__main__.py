"""Kill Spark drivers: ``scripts/spark-fire --rounds 100``."""

from __future__ import annotations

import sys

from spark.fire.command import Command
from spark.fire.killing import Story

COMMAND = Command(
    "scripts/spark-fire",
    "Kill Spark drivers, executors and brokers with SIGKILL while messages flow; then count every message.",
    "drivers",
    "everything was read, copied and consumed exactly once",
)

if __name__ == "__main__":
    sys.exit(COMMAND.run(Story, COMMAND.parse()))
