"""The rooms of the house: which may import which, and what the pure ones must not touch.

Read from the source, not by importing it, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from penstock.protocols import BUILT_IN

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"

#: The arrows. ARCHITECTURE.md shows the same table with the reasons; a test below keeps the two alike.
MAY_IMPORT: dict[str, set[str]] = {
    "schema": set(),
    "patterns": set(),
    "protocols": set(),
    "web": set(),
    "wire": set(),
    "core": {"schema"},
    "journal": {"schema"},
    "client": {"protocols", "wire"},
    "flight": {"schema", "patterns", "core", "journal"},
    "admin": {"schema", "patterns", "core", "journal"},
    "spark": {"schema", "patterns", "protocols", "web", "wire", "journal", "flight", "client"},
    "server": {"schema", "patterns", "protocols", "wire", "core", "journal", "flight", "admin", "client"},
    "cli": {
        "schema",
        "patterns",
        "protocols",
        "wire",
        "core",
        "journal",
        "client",
        "flight",
        "admin",
        "spark",
        "server",
    },
}

#: Whoever imports one of these could look at a clock, a die, a thread or a socket, or hide an arrow from this test.
WORLD = {"asyncio", "concurrent", "importlib", "multiprocessing", "random", "secrets", "select", "selectors", "socket"}
WORLD |= {"ssl", "subprocess", "threading", "time"}
FILES = {"io", "mmap", "os", "pathlib", "shutil", "tempfile"}
PURE = {"wire": WORLD, "schema": WORLD | FILES, "core": WORLD | FILES}

#: Modules that are no room: the package's own page imports nothing of ours, its command belongs to cli.
LOOSE = {"__init__": None, "__main__": "cli"}


def room_of(place: Path) -> str | None:
    """Whose arrows a file follows: its folder's, or, beside the folders, its own."""
    name = place.parts[0].removesuffix(".py")
    return LOOSE.get(name, name)


def imported(source: str, package: str) -> Iterator[str]:
    """The full name of everything that a module of this package imports, wherever in the module it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(package: Path) -> list[str]:
    """What is wrong with the imports under this folder, one line each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        room = room_of(place)
        allowed = MAY_IMPORT.get(room, set()) | {room} if room else set()
        dotted = ".".join(("penstock", *place.parts[:-1]))
        for name in imported(path.read_text(), dotted):
            top, _, rest = name.partition(".")
            if top == "penstock" and rest.partition(".")[0] not in allowed:
                found.append(f"{place} imports {name}")
            elif top in PURE.get(room or "", set()):
                found.append(f"{place} imports {name}, and {room} is pure")
    return found


def strangers(package: Path) -> list[str]:
    """Folders that are no room, and modules that are in none."""
    names = [path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"]
    return sorted(name for name in names if name not in {*MAY_IMPORT, *LOOSE, "__pycache__"})


def test_every_folder_is_a_room_in_the_table() -> None:
    assert strangers(PACKAGE) == []


def test_no_room_imports_what_it_may_not() -> None:
    assert violations(PACKAGE) == []


def test_the_parts_of_protocols_are_in_the_rooms_that_load_them() -> None:
    """They are named in a table, not imported, so the arrows could not tell."""
    rooms = {"listener": "server", "session": "server", "client": "client", "capture": "spark", "load": "cli"}
    for protocol in BUILT_IN:
        for part, room in rooms.items():
            place = getattr(protocol, part)
            assert not place or place.startswith(f"penstock.{room}.")


def test_the_arrows_make_no_circle() -> None:
    order = list(TopologicalSorter(MAY_IMPORT).static_order())
    assert set(order) == set(MAY_IMPORT)


def test_architecture_shows_the_same_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert {room: set(re.findall(r"`(\w+)`", may)) for room, may in rows} == MAY_IMPORT


class TestTheTestItself:
    """A wrong import of every form, in a house made for it, must be noticed."""

    def house(self, folder: Path, file: str, source: str) -> Path:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return folder

    @pytest.mark.parametrize(
        "source",
        [
            "import penstock.core",
            "import penstock.core.queue as q",
            "import penstock",
            "from penstock import core",
            "from penstock.core import queue",
            "from penstock.core.queue import Queue",
            "from .. import core",
            "from ..core import queue",
            "def f():\n    from penstock.core import queue",
            "if TYPE_CHECKING:\n    from penstock.core import queue",
            "import time",
            "from time import monotonic",
            "import asyncio.subprocess",
            "import importlib",
            "def f():\n    import random",
        ],
    )
    def test_forbidden(self, source: str, tmp_path: Path) -> None:
        assert len(violations(self.house(tmp_path, "wire/bad.py", source))) == 1

    @pytest.mark.parametrize(
        "source",
        ["import struct", "from . import stream", "from .stream import X", "from penstock.wire.stream import X"],
    )
    def test_allowed(self, source: str, tmp_path: Path) -> None:
        assert violations(self.house(tmp_path, "wire/good.py", source)) == []

    def test_relative_imports_are_resolved_from_deeper_folders(self, tmp_path: Path) -> None:
        house = self.house(tmp_path, "wire/deep/__init__.py", "from ..stream import X\nfrom ...core import Y")
        assert violations(house) == ["wire/deep/__init__.py imports penstock.core.Y"]

    def test_core_has_no_files(self, tmp_path: Path) -> None:
        house = self.house(tmp_path, "core/bad.py", "import os.path")
        assert violations(house) == ["core/bad.py imports os.path, and core is pure"]
        assert violations(self.house(tmp_path / "x", "journal/good.py", "import os")) == []

    def test_the_package_page_imports_no_room(self, tmp_path: Path) -> None:
        assert violations(self.house(tmp_path, "__init__.py", "from penstock.wire import sspq")) != []

    @pytest.mark.parametrize("file", ["attic/x.py", "loose.py"])
    def test_a_new_folder_or_loose_module_is_noticed(self, file: str, tmp_path: Path) -> None:
        assert strangers(self.house(tmp_path, file, "")) == [Path(file).parts[0].removesuffix(".py")]
