"""The command behind scripts/fuzz: prepares seeds, runs one fuzzer per target, and reports the results."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path

from fuzz.check import checker, targets
from support.vectors import load

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("wire.py")
#: Inputs are short: every rule fits in a few messages, and short inputs run fast. PHPMQ's are the longest.
MAX_INPUT = 256
MAX_PHPMQ_INPUT = 512
#: An input that takes this many seconds is a finding.
TIMEOUT = 10

EXAMPLES = """\
examples:
  scripts/fuzz                                 every decoder, one million executions each
  scripts/fuzz sspq --runs 10000000            one decoder, for long
  scripts/fuzz kokaq-server --seconds 600      for ten minutes
  scripts/fuzz sspq --replay .fuzz/sspq/findings/crash-1a2b…
                                               one input again, with the error in full

What is learned is kept in .fuzz/TARGET/corpus and used by the next run; logs and findings lie beside it.
Exit codes: 0 nothing found, 1 a finding, 2 wrong use, 3 the set-up is incomplete.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    known = targets()
    options = _parse(arguments, list(known))
    if options.replay is not None:
        checker(*known[options.target[0]])(options.replay.read_bytes())
        print(f"{options.target[0]}: nothing is wrong with this input")
        return 0
    if find_spec("atheris") is None:
        print("fuzz: atheris is not installed (it has wheels for a few Python versions only).", file=sys.stderr)
        print("      pip install 'penstock[fuzz]' with one of those, then run this again.", file=sys.stderr)
        return 3
    try:
        outcomes = [fuzz(name, options) for name in options.target or known]
    except KeyboardInterrupt:
        print("\nfuzz: interrupted. What was learned so far is kept for the next run.")
        return 130
    return int(not all(outcomes))


def fuzz(name: str, options: argparse.Namespace) -> bool:
    """Fuzz one target in a process of its own. Returns whether nothing was found."""
    folder = options.folder / name
    for each in ("seeds", "corpus", "findings"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    _write_seeds(name, folder / "seeds")
    log = folder / "log"
    print(f"{name}: fuzzing (log: {log})", flush=True)
    started = time.monotonic()
    with log.open("wb") as out:
        done = subprocess.run(_command(name, folder, options), env=_environment(), stdout=out, stderr=out, check=False)
    _report(name, log, time.monotonic() - started, done.returncode)
    return done.returncode == 0


def _parse(arguments: Sequence[str] | None, known: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Coverage-guided fuzzing of the decoders.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="*", metavar="TARGET", help=f"one of: {', '.join(known)} (default: all)")
    parser.add_argument("--runs", type=_count, metavar="N", help="stop after N executions (default: 1,000,000)")
    parser.add_argument("--seconds", type=_count, metavar="N", help="stop after N seconds")
    parser.add_argument("--seed", type=_count, metavar="N", help="the same number gives the same run")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), metavar="DIR", help="where to keep it all")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and show its error")
    options = parser.parse_args(arguments)
    for name in options.target:
        if name not in known:
            parser.error(f"there is no target {name!r}; choose from {', '.join(known)}")
    if options.replay is not None and len(options.target) != 1:
        parser.error("--replay needs exactly one TARGET")
    if options.replay is not None and not options.replay.is_file():
        parser.error(f"there is no file {options.replay}")
    if options.runs is None and options.seconds is None:
        options.runs = 1_000_000
    return options


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed, not {text!r}")
    return int(text)


def _write_seeds(name: str, folder: Path) -> None:
    """Write every vector of the protocol, from either side: the other side's bytes are useful invalid input."""
    codec = targets()[name][0]
    for vector in load("valid") + load("rejected"):
        if vector.codec is codec:
            (folder / sha1(vector.data).hexdigest()).write_bytes(vector.data)


def _command(name: str, folder: Path, options: argparse.Namespace) -> list[str]:
    limits = []
    if options.runs is not None:
        limits.append(f"-runs={options.runs}")
    if options.seconds is not None:
        limits.append(f"-max_total_time={options.seconds}")
    if options.seed is not None:
        limits.append(f"-seed={options.seed}")
    longest = MAX_PHPMQ_INPUT if name.startswith("phpmq") else MAX_INPUT
    settings = [f"-max_len={longest}", f"-timeout={TIMEOUT}", "-print_final_stats=1"]
    places = [f"-artifact_prefix={folder / 'findings'}/", str(folder / "corpus"), str(folder / "seeds")]
    return [sys.executable, str(CHILD), name, *limits, *settings, *places]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}


def _report(name: str, log: Path, seconds: float, code: int) -> None:
    text = log.read_text(errors="replace")
    executed = re.search(r"number_of_executed_units: (\d+)", text)
    runs = int(executed[1]) if executed else 0
    rate = f"{runs:,} executions in {seconds:.0f} s ({runs / max(seconds, 0.001):,.0f} a second)"
    if code == 0:
        print(f"{name}: {rate}, 0 findings", flush=True)
        return
    written = re.search(r"Test unit written to (.+)", text)
    if written is None:
        print(f"{name}: the fuzzer failed after {rate} (exit code {code}). The end of its log:")
        print("\n".join(text.splitlines()[-20:]), flush=True)
        return
    finding = Path(written[1])
    print(f"{name}: {rate}, 1 FINDING: {_reason(text)}")
    print(f"  input (hex): {finding.read_bytes().hex()}")
    print(f"  replay with: scripts/fuzz {name} --replay {finding}", flush=True)


def _reason(log: str) -> str:
    """Return the line with the failure: the Python exception, or libFuzzer's message (a time-out, memory)."""
    raised = re.search(r"=== Uncaught Python exception: ===\n(.+)", log) or re.search(r"ERROR: libFuzzer: (.+)", log)
    return raised[1] if raised else "see the log"


if __name__ == "__main__":
    sys.exit(main())
