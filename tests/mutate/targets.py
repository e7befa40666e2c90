"""The modules that can be mutated, and the tests that must notice: quick ones that run in one process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/penstock"
MODULES = ("core", "journal", "wire")

#: Excluded: tests that count bytes or steps, which differ in instrumented code; tests that start processes, which are
#: not mutated; and tests with backslashes in their names, such as those of trailing_bytes, which mutmut cannot find.
NEVER = "memory or bytes_of or process or killed or a_broker_serves or trailing_bytes"


class Selection(NamedTuple):
    """Files and folders below tests/; words of which its name must contain one ("" = all), or none."""

    places: tuple[str, ...]
    words: str = ""
    without: str = ""


_COMMANDS = (
    "core/test_broker.py", "core/test_dead_letters.py", "core/test_expiry.py", "core/test_leases.py",
    "core/test_publish.py", "core/test_set_aside.py", "core/test_throttled.py", "core/test_writers.py",
)  # fmt: skip
_RECOVERY = ("core/test_event_columns.py", "core/test_events.py", "core/test_steps.py", "core/test_table.py")
_STRUCTURES = ("core/test_lane.py", "core/test_ordered.py", "core/test_packed_column.py")
_FORMAT = ("journal/test_block.py", "journal/test_checksum.py", "journal/test_log_contract.py")
_FILES = (
    "journal/test_checkpoints.py", "journal/test_files.py", "journal/test_following.py", "journal/test_log_contract.py",
)  # fmt: skip
_REPAIR = ("journal/test_repaired.py", "journal/test_verified.py")
_DAMAGED = (
    "journal/test_faults.py", "journal/test_full_disk.py", "journal/test_published_properties.py",
    "cli/test_journal_commands.py",
)  # fmt: skip
#: Each of these tests makes hundreds of runs.
_EACH_CALL = "every_disk_call or after_every"
#: The same vectors again, in pieces.
_IN_PIECES = "byte_by_byte or every_split or empty_pieces or cut_short_anywhere"

#: The first tests for a module or a part of it: a minute of tests at most, because all of them run once to record what
#: they reach, and a surviving mutant runs against all that reach it.
FIRST = {
    "core": Selection((*_COMMANDS, *_RECOVERY, *_STRUCTURES)),
    "core/commands": Selection(_COMMANDS),
    "core/recovery": Selection(_RECOVERY),
    "core/structures": Selection((*_STRUCTURES, "core/test_broker.py")),
    "journal": Selection((*_FORMAT, *_FILES, *_REPAIR, "journal/test_arrow.py", "journal/test_committer.py")),
    "journal/format": Selection((*_FORMAT, "journal/test_files.py")),
    "journal/files": Selection(_FILES),
    "journal/repair": Selection(_REPAIR),
    "wire": Selection(("wire",), without=_IN_PIECES),
    "wire/kokaq": Selection(("wire",), "kokaq", _IN_PIECES),
    "wire/phpmq": Selection(("wire",), "phpmq", _IN_PIECES),
    "wire/sspq": Selection(("wire",), "sspq", _IN_PIECES),
}
#: The tests for mutants that survive the first ones.
SECOND = {
    "core": Selection(("core/test_broker_stateful.py",)),
    "core/recovery": Selection((*_COMMANDS, "core/test_broker_stateful.py")),
    "core/structures": Selection((*_COMMANDS, *_RECOVERY, "core/test_broker_stateful.py")),
    "journal": Selection(_DAMAGED, without=_EACH_CALL),
    "journal/format": Selection(("journal/test_arrow.py", *_REPAIR, *_DAMAGED), without=_EACH_CALL),
    "wire": Selection(("wire/test_vectors.py",), _IN_PIECES),
    "wire/kokaq": Selection(("wire/test_vectors.py",), f"kokaq and ({_IN_PIECES})"),
    "wire/phpmq": Selection(("wire/test_vectors.py",), f"phpmq and ({_IN_PIECES})"),
    "wire/sspq": Selection(("wire/test_vectors.py",), f"sspq and ({_IN_PIECES})"),
}


def selection_for(target: str, table: dict[str, Selection]) -> Selection:
    """Return the selection of the longest entry that equals or contains the target."""
    names = [name for name in table if target == name or target.startswith(name + "/")]
    return table[max(names, key=len)]


def check(target: str) -> str:
    """Return the target's canonical name. Raises ValueError if it is unknown."""
    target = target.removeprefix("src/penstock/").removesuffix("/").removesuffix(".py")
    there = (SOURCE / target).is_dir() or (SOURCE / f"{target}.py").is_file()
    if target.partition("/")[0] not in MODULES or not there:
        raise ValueError(f"{target!r} is none of {', '.join(MODULES)}, nor a folder or a module of one")
    return target


def patterns(target: str) -> list[str]:
    """Return the file patterns of a target for mutmut."""
    return [f"src/penstock/{target}/*"] if (SOURCE / target).is_dir() else [f"src/penstock/{target}.py"]


def function_of(mutant: str) -> str:
    """The function a mutant changes: mutmut names the second of ``Decoder._run`` ``xǁDecoderǁ_run__mutmut_2``."""
    module, _, name = mutant.rpartition("__mutmut_")[0].rpartition(".")
    return f"{module}.{name[2:].replace('ǁ', '.')}"


def equivalents() -> set[tuple[str, str]]:
    """Return the changes without an observable effect: the function, and the mutant's line."""
    lines = (Path(__file__).parent / "equivalent.txt").read_text().splitlines()
    parts = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {(function, changed) for function, _, changed in parts}


def is_equivalent(mutant: str, diff: str, known: set[tuple[str, str]]) -> bool:
    """Whether a mutant is listed as equivalent."""
    lines = [line[1:].strip() for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    return bool(lines) and all((function_of(mutant), line) in known for line in lines)
