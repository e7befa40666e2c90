"""Modules that may be compiled from their Python source, and the choice between compiled and source.

``penstock compile`` (:mod:`penstock.compiled.build`) makes extension modules of ``MODULES`` with mypyc; a wheel may
contain them too. They are in a folder of this package whose name identifies their origin: the Python, its platform, and
a checksum of the sources. So they are used only with the sources and the Python that they were made for. In all other
cases the sources run, which are complete by themselves.

``PENSTOCK_COMPILED`` chooses: ``auto`` (the default), ``off``, or ``required``. If they are required but unusable, or
the variable has another value, every import of a Penstock module fails; the ``penstock`` command prints ``refusal``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

#: The modules on every message's path, from incoming to outgoing bytes. Not included: rarely used modules, msgspec's
#: structs, and ``request_ids``, which compares tuples by identity, while compiled code re-creates them.
MODULES = (
    "penstock.core.commands.dead_letters",
    "penstock.core.commands.dispatch",
    "penstock.core.commands.expiry",
    "penstock.core.commands.lock",
    "penstock.core.commands.publish",
    "penstock.core.commands.queues",
    "penstock.core.commands.receive",
    "penstock.core.commands.settle",
    "penstock.core.commands.tick",
    "penstock.core.events",
    "penstock.core.queue",
    "penstock.core.ready",
    "penstock.core.state",
    "penstock.core.structures.chunk",
    "penstock.core.structures.columns",
    "penstock.core.structures.deadlines",
    "penstock.core.structures.heads",
    "penstock.core.structures.indexed_lanes",
    "penstock.core.structures.item",
    "penstock.core.structures.lane",
    "penstock.core.structures.ordered",
    "penstock.journal.committer",
    "penstock.journal.files.disk",
    "penstock.journal.files.failures",
    "penstock.journal.files.log",
    "penstock.journal.files.marks",
    "penstock.journal.files.segment_writer",
    "penstock.journal.files.space",
    "penstock.journal.files.tail",
    "penstock.journal.format.encoding",
    "penstock.journal.format.segment",
    "penstock.journal.segmented_log",
    "penstock.server.admin.figures",
    "penstock.server.engine.cache",
    "penstock.server.engine.commits",
    "penstock.server.engine.damaged_messages",
    "penstock.server.engine.engine",
    "penstock.server.engine.ids",
    "penstock.server.engine.kept_batches",
    "penstock.server.engine.lease_hold",
    "penstock.server.limits.admission",
    "penstock.server.network.busy_poll",
    "penstock.server.network.cold_reads",
    "penstock.server.network.inbox",
    "penstock.server.network.memory",
    "penstock.server.network.outbox",
    "penstock.server.network.pollers",
    "penstock.server.network.quick_ack",
    "penstock.server.network.runtime",
    "penstock.server.network.session",
    "penstock.server.network.turns",
    "penstock.server.protocols.kokaq.message_answer",
    "penstock.server.protocols.kokaq.message_requests",
    "penstock.server.protocols.kokaq.pending",
    "penstock.server.protocols.kokaq.queue_requests",
    "penstock.server.protocols.kokaq.session",
    "penstock.server.protocols.phpmq.session",
    "penstock.server.protocols.sspq.session",
    "penstock.wire.kokaq.decode",
    "penstock.wire.kokaq.encode",
    "penstock.wire.kokaq.push_runs",
    "penstock.wire.phpmq.decode",
    "penstock.wire.phpmq.encode",
    "penstock.wire.phpmq.forms",
    "penstock.wire.phpmq.runs",
    "penstock.wire.sspq.decode",
    "penstock.wire.sspq.encode",
    "penstock.wire.stream",
)
#: The library with the code of all modules. The extension modules only refer to it.
GROUP = "penstock_compiled"
LIBRARY = f"{GROUP}__mypyc"
#: The sources of compiled modules, and of modules they rely on. If one changes, compiled modules are out of date.
SOURCES = ("compiled", "core", "journal", "schema.py", "server", "wire")
PACKAGE = Path(__file__).parents[1]
#: The parent of the folders with compiled modules.
FOLDER = PACKAGE / "compiled" / "native"
VARIABLE = "PENSTOCK_COMPILED"
MODES = ("auto", "off", "required")


class State(Enum):
    """Whether compiled modules are used, and if not, why."""

    USED = "compiled"
    NONE = "from source"
    OFF = f"from source: {VARIABLE}=off"
    STALE = "from source: the compiled modules are out of date (penstock compile)"
    BROKEN = "from source: the compiled modules cannot be loaded (penstock compile)"


class _Finder:
    """A meta path finder that redirects imports to compiled modules."""

    def __init__(self, folder: Path) -> None:
        self.places = {name: place(folder, name) for name in (LIBRARY, *MODULES)}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a compiled module; None leaves the import to Python."""
        file = self.places.get(name)
        return None if file is None else spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


class _Refuser:
    """A meta path finder that makes imports fail."""

    #: The command's modules that run before it reads ``refusal``.
    ALLOWED = ("penstock.__main__", "penstock.cli", "penstock.cli.entry")

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raise ImportError for Penstock's modules."""
        if name.startswith("penstock.") and name not in self.ALLOWED:
            raise ImportError(self.reason)


def place(folder: Path, module: str) -> str:
    """The file of a compiled module in a folder."""
    return str(folder.joinpath(*module.split(".")).with_suffix(EXTENSION_SUFFIXES[0]))


def prefix() -> str:
    """The prefix of the names of this Python's folders."""
    return EXTENSION_SUFFIXES[0].strip(".").partition(".")[0] + "-"


def current_folder(package: Path = PACKAGE) -> Path:
    """The folder for modules compiled from the current sources, which may not exist."""
    from hashlib import blake2b  # noqa: PLC0415 - slow to import, and unused if nothing was compiled

    digest = blake2b(digest_size=8)
    for each in SOURCES:
        files = [package / each] if each.endswith(".py") else sorted((package / each).rglob("*.py"))
        for file in files:
            digest.update(f"{file.relative_to(package)}\0".encode())
            digest.update(file.read_bytes())
    return FOLDER / (prefix() + digest.hexdigest())


def _mode() -> str:
    mode = os.environ.get(VARIABLE) or "auto"
    if mode not in MODES:
        raise ImportError(f"{VARIABLE} is {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode!r}")
    return mode


def _load(folder: Path) -> State:
    """Import modules from this folder from now on, if all are readable and the library loads."""
    finder = _Finder(folder)
    if not all(os.access(file, os.R_OK) for file in finder.places.values()):
        return State.BROKEN
    spec = finder.find_spec(LIBRARY)
    assert spec is not None
    try:
        sys.modules[LIBRARY] = module_from_spec(spec)
    except ImportError:
        return State.BROKEN
    sys.meta_path.insert(0, finder)
    return State.USED


def begin() -> State:
    """Use the modules compiled from the current sources, if there are any. Once per process.

    Raises ImportError if the variable forbids the result.
    """
    mode = _mode()
    if mode == "off":
        return State.OFF
    state = State.NONE
    if FOLDER.is_dir() and any(FOLDER.glob(f"{prefix()}*")):
        folder = current_folder()
        state = _load(folder) if os.path.isdir(folder) else State.STALE  # False without permission
    if mode == "required" and state is not State.USED:
        raise ImportError(f"{VARIABLE}=required, but Penstock runs {state.value}: {VARIABLE}=off penstock compile")
    return state


def _decide() -> tuple[State, str]:
    try:
        return begin(), ""
    except ImportError as error:
        sys.meta_path.insert(0, _Refuser(str(error)))
        return State.NONE, str(error)


#: The state of this process, and why nothing may be imported, or an empty string.
state, refusal = _decide()
