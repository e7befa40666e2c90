"""Compiled modules behave like their sources, and are used only while they are up to date."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import compiled
from penstock.compiled import MODULES, State, build
from support.commands import penstock

ROOT = Path(__file__).parents[1]
#: The tests of compiled modules, except those that need the sources (``conftest.py``).
PARTS = {
    "core": ["tests/core"],
    "codecs": ["tests/wire"],
    "journal": [f"tests/journal/test_{part}.py" for part in ("block", "committer", "files", "log_contract", "faults")],
    "server": [
        *(f"tests/server/test_{part}.py" for part in ("runtime", "commits", "cache", "kokaq_runs", "busy_poll", "ids")),
        *("tests/server/test_promises.py", "tests/server/test_damaged.py", "tests/server/test_conversations.py"),
        *(f"tests/server/test_{protocol}_conformance.py" for protocol in ("kokaq", "phpmq", "sspq")),
    ],
}


@pytest.fixture(scope="module")
def compiled_modules() -> None:
    """Compile the modules if needed. Skip without a C compiler."""
    try:
        build.check_tools()
    except build.CompileError as error:
        pytest.skip(str(error))
    if not build.is_compiled():
        build.compile_modules()


@pytest.mark.usefixtures("compiled_modules")
class TestCompiled:
    @pytest.mark.parametrize("tests", PARTS.values(), ids=PARTS)
    def test_it_behaves_like_the_source(self, tests: list[str]) -> None:
        """Run the tests of the compiled modules again, with fewer examples of each property."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, compiled.VARIABLE: "required", "HYPOTHESIS_EXAMPLES": "10"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]

    def test_simulated_brokers_keep_their_promises(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "simulate", "--seeds", "20", "--json"],
            cwd=ROOT,
            env={**os.environ, compiled.VARIABLE: "required", "PYTHONPATH": os.pathsep.join(("src", "tests"))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, json.loads(done.stdout)["lives"]) == (0, 20), done.stderr[-3000:]

    def test_the_command_runs_compiled(self) -> None:
        shown = penstock("compile", "--check", PENSTOCK_COMPILED="required")
        assert (shown.code, shown.out) == (0, "Penstock runs compiled\n")
        shown = penstock("compile", "--check", "--json", PENSTOCK_COMPILED="off")
        assert (shown.code, shown.json) == (4, [{"compiled": False, "runs": "from source: PENSTOCK_COMPILED=off"}])
        assert penstock("--version", PENSTOCK_COMPILED="auto").out.endswith(" (compiled)\n")
        again = penstock("compile", PENSTOCK_COMPILED="auto")
        assert (again.code, again.err) == (0, "compiled already, and up to date\n")
        assert build.compile_modules() is False  # as in a run that waited for a concurrent one
        again = penstock("compile", "--json", PENSTOCK_COMPILED="off")
        assert (again.code, again.json, again.err) == (0, [{"modules": len(MODULES), "made": False}], "")

    def test_incomplete_modules_are_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(compiled.VARIABLE, "auto")
        for module in (build, compiled):
            monkeypatch.setattr(module, "MODULES", (*MODULES, "penstock.core.there_is_none"))
        assert compiled.begin() is State.BROKEN
        assert not build.is_compiled()  # so that `penstock compile`, the remedy for that state, works


class TestUse:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(compiled, "FOLDER", tmp_path)
        monkeypatch.setenv(compiled.VARIABLE, "auto")
        return tmp_path

    def test_none_are_there(self, folder: Path) -> None:
        assert compiled.begin() is State.NONE

    def test_modules_of_another_python_do_not_count(self, folder: Path) -> None:
        (folder / "cpython-38-x86_64-linux-gnu-0123456789abcdef").mkdir()
        assert compiled.begin() is State.NONE

    def test_modules_of_other_sources_are_out_of_date(self, folder: Path) -> None:
        (folder / f"{compiled.prefix()}0123456789abcdef").mkdir()
        assert compiled.begin() is State.STALE

    def test_modules_that_can_not_be_loaded_are_not_used(self, folder: Path) -> None:
        current = compiled.current_folder()
        current.mkdir()
        assert compiled.begin() is State.BROKEN
        for module in (compiled.LIBRARY, *MODULES):
            file = Path(compiled.place(current, module))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"no library")
        assert compiled.begin() is State.BROKEN
        assert compiled.LIBRARY not in sys.modules

    def test_a_folder_that_can_not_be_looked_into(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / f"{compiled.prefix()}0123456789abcdef").mkdir()
        monkeypatch.setattr(compiled, "current_folder", lambda: folder / ("x" * 1000))  # as without permission
        assert compiled.begin() is State.STALE

    def test_off(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / f"{compiled.prefix()}0123456789abcdef").mkdir()
        monkeypatch.setenv(compiled.VARIABLE, "off")
        assert compiled.begin() is State.OFF

    def test_required(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(compiled.VARIABLE, "required")
        with pytest.raises(ImportError, match="PENSTOCK_COMPILED=required, but Penstock runs from source"):
            compiled.begin()

    def test_an_invalid_value(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(compiled.VARIABLE, "on")
        with pytest.raises(ImportError, match="PENSTOCK_COMPILED is auto, off or required, not 'on'"):
            compiled.begin()

    @pytest.mark.parametrize(
        ("word", "reason"),
        [("yes", " is auto, off or required, not 'yes'"), ("required", "=required, but Penstock runs from source: ")],
    )
    def test_the_command_explains_a_refusal_in_one_line(self, tmp_path: Path, word: str, reason: str) -> None:
        """Uses a copy of the sources in which nothing is compiled."""
        for part in ("__init__.py", "compiled/__init__.py", "cli/__init__.py", "cli/entry.py"):
            (tmp_path / "penstock" / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "src" / "penstock" / part, tmp_path / "penstock" / part)
        run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=False)
        env = {**os.environ, "PYTHONPATH": str(tmp_path), compiled.VARIABLE: word}
        done = run([sys.executable, "-c", "from penstock.cli.entry import main; main()"], env=env)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"penstock: PENSTOCK_COMPILED{reason}")
        done = run([sys.executable, "-c", "import penstock.schema"], env=env)
        assert (done.returncode, reason in done.stderr.splitlines()[-1]) == (1, True)

    def test_any_change_of_a_source_is_noticed(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = compiled.current_folder()
        read = Path.read_bytes
        monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == "policy.py"))
        assert compiled.current_folder() != before


class TestBuild:
    def test_the_table_names_existing_modules(self) -> None:
        for module in MODULES:
            assert (ROOT / "src" / module.replace(".", "/")).with_suffix(".py").is_file()
            assert module.split(".")[1] in compiled.SOURCES

    def test_missing_tools_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "there-is-none --fast")
        with pytest.raises(build.CompileError, match="there is no C compiler 'there-is-none'"):
            build.check_tools()
        monkeypatch.setattr(build, "find_spec", lambda name: None)
        with pytest.raises(build.CompileError, match=r"takes mypyc and setuptools: pip install 'penstock\[compile\]'"):
            build.check_tools()

    def test_a_compiler_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "MODULES", ("penstock.core.there_is_none",))
        with pytest.raises(build.CompileError, match="compiling failed; the sources run as before") as raised:
            build.compile_modules()
        assert "there_is_none" in " ".join(raised.value.__notes__)

    def test_a_folder_that_is_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(build, "FOLDER", tmp_path / "file" / "native")
        with pytest.raises(build.CompileError, match="compiled modules cannot be kept in"), build.alone():
            pass

    def test_sources_that_change_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = shutil.copytree(compiled.PACKAGE / "core", tmp_path / "penstock" / "core").parent
        monkeypatch.setattr(build, "PACKAGE", package)
        for module in (build, compiled):
            monkeypatch.setattr(module, "FOLDER", tmp_path / "native")
        monkeypatch.setattr(compiled, "SOURCES", ("core",))
        monkeypatch.setattr(build, "is_compiled", lambda: False)

        def edited(work: Path) -> None:
            (work / "made").mkdir()
            (package / "core" / "policy.py").write_text("# another policy")

        monkeypatch.setattr(build, "_run_mypyc", edited)
        with pytest.raises(build.CompileError, match="the sources were changed while they were compiled"):
            build.compile_modules()
        assert [path.name for path in (tmp_path / "native").iterdir()] == [".lock"]

    def test_a_removal_that_is_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The remains do not count as compiled modules, and the next removal deletes them."""
        monkeypatch.setattr(build, "FOLDER", tmp_path)
        folder = tmp_path / f"{compiled.prefix()}0123456789abcdef"
        for part in ("a", "b"):
            (folder / part).mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", interrupted)
            with pytest.raises(KeyboardInterrupt):
                build.remove()
        assert (folder.exists(), (tmp_path / ".removed").is_dir()) == (False, True)
        folder.mkdir()
        assert (build.remove(), build.remove()) == (1, 0)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]

    def test_conflicting_options(self) -> None:
        assert penstock("compile", "--check", "--remove").code == 2


class TestWheel:
    @pytest.fixture
    def hook(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The build hook, without hatchling, which is only installed while a wheel is built."""
        interface = ModuleType("interface")
        interface.BuildHookInterface = dict  # type: ignore[attr-defined]  # any class that takes a parameter
        monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        monkeypatch.setenv(compiled.VARIABLE, "off")
        monkeypatch.setattr(build, "compile_modules", lambda: True)
        spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        hook = module.CompiledModules()
        hook.root = str(ROOT)
        return hook

    def test_the_folder_goes_where_the_import_looks_for_it(self, hook: Any) -> None:
        data: dict[str, Any] = {"force_include": {}, "pure_python": True}
        hook.initialize("standard", data)
        folder = compiled.current_folder()
        assert data["force_include"] == {str(folder): f"penstock/compiled/native/{folder.name}"}
        assert (data["pure_python"], data["infer_tag"]) == (False, True)

    def test_an_editable_install_compiles_nothing(self, hook: Any) -> None:
        data: dict[str, Any] = {"force_include": {}, "pure_python": True}
        hook.initialize("editable", data)
        assert data == {"force_include": {}, "pure_python": True}

    def test_it_is_not_built_unless_asked_for(self) -> None:
        hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
        assert hatch["build"]["targets"]["wheel"]["hooks"]["custom"]["enable-by-default"] is False


def interrupted(path: Path, ignore_errors: bool = False) -> None:
    if not ignore_errors:
        raise KeyboardInterrupt
