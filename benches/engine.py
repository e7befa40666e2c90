"""The engine's benches: the core on its journal, without sockets. Run: .venv/bin/python -m benches.engine [--quick]

Everything takes a few minutes and about 4 GB of disk in the temporary folder (TMPDIR); ``--quick`` does a tenth of it.
``benches.engine recovery`` runs one of the parts only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from benches import engine_memory, engine_recovery, engine_traffic
from benches.measure import Figure

PARTS: dict[str, Callable[[int], list[Figure]]] = {
    "traffic": engine_traffic.figures,
    "recovery": engine_recovery.figures,
    "memory": engine_memory.figures,
}
#: Messages, where it says "10 million".
MILLIONS = 10_000_000


def table(title: str, figures: Sequence[Figure]) -> str:
    width = max(len(figure.name) for figure in figures)
    lines = [f"\n{title}\n{'':{width}}        figure  unit                     aim"]
    for figure in figures:
        line = f"{figure.name:{width}}  {figure.value:>12,.{figure.digits}f}  {figure.unit:20}  {figure.verdict}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.engine", description="Benches of the engine.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    options = parser.parse_args()
    scale = MILLIONS // 10 if options.quick else MILLIONS
    for name in options.parts or PARTS:
        sys.stdout.write(table(f"engine, {name}", PARTS[name](scale)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
