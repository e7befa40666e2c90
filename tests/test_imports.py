"""Which package may import which, and the modules that pure packages must not import.

Read from the source, not by importing it, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from penstock.protocols import BUILT_IN

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"

#: The packages of a broker.
_SERVED = {"compiled", "schema", "patterns", "companions", "protocols", "wire", "core", "journal", "flight", "admin"}
_SERVED |= {"tls_errors"}

#: The arrows. ARCHITECTURE.md shows the same table with the reasons; a test below keeps the two alike.
MAY_IMPORT: dict[str, set[str]] = {
    "compiled": set(),
    "schema": set(),
    "patterns": set(),
    "protocols": set(),
    "hosts": set(),
    "tls_errors": set(),
    "web": set(),
    "wire": set(),
    "core": {"schema"},
    "journal": {"schema"},
    "client": {"protocols", "hosts", "tls_errors", "wire"},
    "companions": {"patterns"},
    "flight": {"schema", "patterns", "companions", "core", "journal"},
    "sql": {"patterns", "companions", "journal", "flight"},
    "admin": {"schema", "patterns", "companions", "core", "journal", "sql"},
    "spark": {"schema", "patterns", "protocols", "hosts", "web", "wire", "journal", "flight", "client"},
    "server": _SERVED,
    "demo": {"protocols", "companions", "client", "flight", "spark"},
    "bench": {"protocols", "companions", "wire", "client"},
    "cli": _SERVED | {"hosts", "client", "spark", "server", "demo", "bench"},
}

#: With one of these, a module could use a clock, randomness, threads or sockets, or hide an import from this test.
WORLD = {"asyncio", "concurrent", "importlib", "multiprocessing", "random", "secrets", "select", "selectors", "socket"}
WORLD |= {"ssl", "subprocess", "threading", "time"}
FILES = {"io", "mmap", "os", "pathlib", "shutil", "tempfile"}
PURE = {"wire": WORLD, "schema": WORLD | FILES, "core": WORLD | FILES}

#: A journal's internals, private to its package. Other packages call ``open_journal``, see ``contract``.
INSIDE = {
    "journal": (
        "penstock.journal.files",
        "penstock.journal.memory",
        "penstock.journal.postgresql",
        "penstock.journal.repair",
    )
}

#: The arrows inside a package: what each sub-package may import of it. ``*``: the modules beside the sub-packages.
INNER: dict[str, dict[str, set[str]]] = {
    "spark": {
        "*": {"lake", "archived"},
        "lake": {"errors"},
        "archived": {"*", "lake"},
        "pipelines": {"*", "lake", "archived"},
    },
    # ``*`` is ``logs.py``. The README.md of the package shows the same table with the reasons.
    "server": {
        "*": set(),
        "system": set(),
        "options": set(),
        "registry": {"*", "options"},
        "engine": {"*"},
        "limits": {"engine"},
        "network": {"*", "system", "options", "registry", "engine", "limits"},
        "protocols": {"options", "engine", "network"},
        "maintenance": {"system", "registry", "engine", "limits", "network"},
        "companions": {"*", "registry", "network"},
        "flight": {"*", "options", "registry", "network", "companions"},
        "admin": {"*", "options", "network", "companions"},
        "process": {
            "*", "system", "options", "registry", "engine", "limits", "network", "maintenance", "companions", "flight",
            "admin",
        },
    },
}  # fmt: skip

#: Top-level modules: the first redirects imports to compiled modules, and the command belongs to cli.
ALONE = {"__init__": "compiled", "__main__": "cli"}


def owner_of(place: Path) -> str | None:
    """The entry whose arrows apply to a file: its folder, or for a top-level module itself."""
    name = place.parts[0].removesuffix(".py")
    return ALONE.get(name, name)


def imported(source: str, package: str) -> Iterator[str]:
    """The full names of all imports of a module in this package, including those in functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(package: Path) -> list[str]:
    """The forbidden imports under this folder, one line each."""
    wrong = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        owner = owner_of(place)
        allowed = MAY_IMPORT.get(owner, set()) | {owner} if owner else set()
        dotted = ".".join(("penstock", *place.parts[:-1]))
        for name in imported(path.read_text(), dotted):
            top, _, rest = name.partition(".")
            if top == "penstock" and rest.partition(".")[0] not in allowed:
                wrong.append(f"{place} imports {name}")
            elif top in PURE.get(owner or "", set()):
                wrong.append(f"{place} imports {name}, and {owner} is pure")
            elif any(name.startswith(inside) for of, each in INSIDE.items() if of != owner for inside in each):
                wrong.append(f"{place} imports {name}, which is inside of its package")
    return wrong


def inner_violations(package: Path) -> list[str]:
    """Imports that violate ``INNER`` under this folder, one line each, including those in functions."""
    wrong = []
    for folder in filter(Path.is_dir, map(package.joinpath, INNER)):
        outer, rows = folder.name, INNER[folder.name]
        rooms = {path.name for path in folder.iterdir() if path.is_dir()}
        for path in sorted(folder.rglob("*.py")):
            place = path.relative_to(folder)
            owner = place.parts[0] if len(place.parts) > 1 else "*"
            for name in imported(path.read_text(), ".".join(("penstock", outer, *place.parts[:-1]))):
                target = name.removeprefix(f"penstock.{outer}.").partition(".")[0]
                parts = {target} if target in rooms else {target, "*"}
                if name.startswith(f"penstock.{outer}.") and not parts & {owner, *rows[owner]}:
                    wrong.append(f"{outer}/{place} imports {name}")
    return wrong


def not_in_the_table(package: Path) -> list[str]:
    """Folders and modules missing from the table."""
    names = [path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"]
    return sorted(name for name in names if name not in {*MAY_IMPORT, *ALONE, "__pycache__"})


def test_every_folder_is_in_the_table() -> None:
    assert not_in_the_table(PACKAGE) == []


def test_no_package_has_forbidden_imports() -> None:
    assert violations(PACKAGE) == []


def test_no_sub_package_has_forbidden_imports() -> None:
    assert inner_violations(PACKAGE) == []


def test_the_parts_of_protocols_are_in_the_packages_that_load_them() -> None:
    """They are named in a table, not imported, so the arrows do not cover them."""
    packages = {"listener": "server", "session": "server", "client": "client", "capture": "spark", "load": "bench"}
    for protocol in BUILT_IN:
        for part, owner in packages.items():
            place = getattr(protocol, part)
            assert not place or place.startswith(f"penstock.{owner}.")


def test_three_modules_of_the_journal_know_the_driver() -> None:
    """And it is imported on demand, so that other uses do not need it."""
    knows = {
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / "journal").rglob("*.py")
        for name in imported(path.read_text(), "penstock.journal")
        if name.partition(".")[0] == "psycopg"
    }
    assert knows == {f"journal/postgresql/{name}.py" for name in ("connection", "prepared", "server_session")}
    loaded = "import penstock.journal, penstock.server.process.serve, sys; print('psycopg' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "False\n"


def test_the_arrows_form_no_cycle() -> None:
    for table in (MAY_IMPORT, INNER["server"]):
        assert set(TopologicalSorter(table).static_order()) == set(table)


def test_architecture_shows_the_same_table() -> None:
    assert shown_table(ROOT / "ARCHITECTURE.md") == MAY_IMPORT


def test_the_page_of_the_server_shows_its_table() -> None:
    shown = shown_table(PACKAGE / "server/README.md")
    as_star = {"logs": "*"}
    assert {as_star.get(part, part): {as_star.get(each, each) for each in may} for part, may in shown.items()} == INNER[
        "server"
    ]


def shown_table(page: Path) -> dict[str, set[str]]:
    """The arrows in a page's table: rows of a name, its permitted imports, and the reason."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page.read_text(), re.MULTILINE)
    return {owner: set(re.findall(r"`(\w+)`", may)) for owner, may in rows}


class TestTheTestItself:
    """Every form of forbidden import, in a generated tree, must be found."""

    def tree(self, folder: Path, file: str, source: str) -> Path:
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
        assert len(violations(self.tree(tmp_path, "wire/bad.py", source))) == 1

    @pytest.mark.parametrize(
        "source",
        ["import struct", "from . import stream", "from .stream import X", "from penstock.wire.stream import X"],
    )
    def test_allowed(self, source: str, tmp_path: Path) -> None:
        assert violations(self.tree(tmp_path, "wire/good.py", source)) == []

    def test_relative_imports_are_resolved_from_deeper_folders(self, tmp_path: Path) -> None:
        tree = self.tree(tmp_path, "wire/deep/__init__.py", "from ..stream import X\nfrom ...core import Y")
        assert violations(tree) == ["wire/deep/__init__.py imports penstock.core.Y"]

    @pytest.mark.parametrize(
        "source",
        [
            "from penstock.journal.files.disk import RealDisk",
            "from penstock.journal import memory",
            "def f():\n    import penstock.journal.repair.survey",
        ],
    )
    def test_the_inside_of_the_journal_is_its_own(self, source: str, tmp_path: Path) -> None:
        assert len(violations(self.tree(tmp_path, "server/bad.py", source))) == 1
        assert violations(self.tree(tmp_path / "x", "journal/good.py", source)) == []
        outside = "from penstock.journal import open_journal\nfrom penstock.journal.contract import Log"
        assert violations(self.tree(tmp_path / "y", "server/good.py", outside)) == []

    @pytest.mark.parametrize(
        ("file", "source", "wrong"),
        [
            ("options.py", "def f():\n    from penstock.spark.pipelines.run import drive", True),
            ("lake/store.py", "from penstock.spark.options import parse", True),
            ("lake/store.py", "from penstock.spark.errors import StoreFailed", False),
            ("lake/store.py", "from penstock.spark.lake.files import write", False),
            ("archived/part.py", "from ..pipelines import run", True),
            ("pipelines/run.py", "from penstock.spark.options import parse", False),
        ],
    )
    def test_arrows_inside_a_package(self, file: str, source: str, wrong: bool, tmp_path: Path) -> None:
        for room in INNER["spark"].keys() - {"*"}:
            self.tree(tmp_path, f"spark/{room}/__init__.py", "")
        assert bool(inner_violations(self.tree(tmp_path, f"spark/{file}", source))) == wrong

    def test_core_has_no_files(self, tmp_path: Path) -> None:
        tree = self.tree(tmp_path, "core/bad.py", "import os.path")
        assert violations(tree) == ["core/bad.py imports os.path, and core is pure"]
        assert violations(self.tree(tmp_path / "x", "journal/good.py", "import os")) == []

    def test_the_first_module_imports_no_package(self, tmp_path: Path) -> None:
        assert violations(self.tree(tmp_path, "__init__.py", "from penstock.wire import sspq")) != []

    @pytest.mark.parametrize("file", ["other/x.py", "alone.py"])
    def test_a_new_folder_or_module_is_noticed(self, file: str, tmp_path: Path) -> None:
        assert not_in_the_table(self.tree(tmp_path, file, "")) == [Path(file).parts[0].removesuffix(".py")]
