"""Every command has help with worked examples, exit codes, JSON output and completion."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli import entry
from penstock.cli.errors import CODES, CommandError, code_of
from penstock.cli.main import COMMANDS, main
from penstock.client import BadURL, ConnectFailed
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.protocols import ProtocolError
from penstock.server.options.configuration import load
from support.commands import environment, penstock

ROOT = Path(__file__).parents[2]


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = list(commands())
NAMES = [" ".join(path) for path, _ in ALL]


def help_of(command: click.Command) -> str:
    return (command.help or "") + (command.epilog or "")


def examples(text: str) -> list[str]:
    """The command lines in a help text, without the remarks that may follow after several spaces."""
    return [line.split("   ")[0] for line in re.findall(r"^ *(?:PENSTOCK_\S+ )?(penstock .*)$", text, re.MULTILINE)]


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_help_has_worked_examples(path: tuple[str, ...], command: click.Command) -> None:
    text = help_of(command)
    if isinstance(command, click.Group) and path == ("journal",):
        assert "Exit codes:" in text
        return
    assert "Examples:" in text
    assert any(line.startswith(f"penstock {' '.join(path)}") for line in examples(text))


def check_options(line: str) -> None:
    """Check that a command line names an existing command and only its options."""
    known = {" ".join(each): found for each, found in ALL}
    words = shlex.split(re.split(r" [|<>&] ?| >> | > ", line)[0], comments=True)[1:]
    name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
    assert name in known, line
    options = {each for parameter in known[name].params for each in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_examples_use_only_existing_options(path: tuple[str, ...], command: click.Command) -> None:
    for line in examples(help_of(command)):
        check_options(line)


@pytest.mark.parametrize("page", ["commands.md", "operations.md"])
def test_the_pages_use_only_existing_commands_and_options(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in examples(block)]
    assert lines
    for line in lines:
        check_options(line)


def test_the_configurations_on_the_page_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        (tmp_path / "x.toml").write_text(block)
        load(str(tmp_path / "x.toml"), {}, {})


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_json_everywhere(path: tuple[str, ...], command: click.Command) -> None:
    if isinstance(command, click.Group) or path in (("serve",), ("completion",)):
        return  # serve has --log-format json; completion prints a script
    assert "--json" in {each for parameter in command.params for each in parameter.opts}


def test_the_page_has_every_command_and_option() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for path, command in ALL:
        if path[0] != "journal":
            assert f"penstock {' '.join(path)}" in page
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    assert f"`{parameter.opts[0]}" in page, f"{' '.join(path)} {parameter.opts[0]}"


def test_an_unknown_command() -> None:
    code, _, err = penstock("sevre")
    assert (code, "No such command 'sevre'" in err) == (2, True)


@pytest.mark.parametrize("name", CODES)
def test_every_error_with_an_exit_code_exists(name: str) -> None:
    module, _, error = name.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), error), Exception)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadURL("x"), 2),
        (ConnectFailed("x"), 1),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), 2),
        (PermissionError("x"), 1),
        (JournalDamaged("x", "y", 0, (1, 2), "z"), 1),
        (JournalRefused("x"), 3),
        (CommandError("x", exit_code=4), 4),
        (ModuleNotFoundError("x", name="pyarrow.flight"), 1),
        (ModuleNotFoundError("x", name="click"), None),
        (KeyError("x"), None),
    ],
    ids=repr,
)
def test_an_error_has_the_exit_code_of_its_nearest_base_class(error: Exception, code: int | None) -> None:
    assert code_of(error) == code


def test_an_error_while_a_command_is_imported_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ProtocolError("two protocols have one port")

    monkeypatch.setattr(type(main), "get_command", broken)
    done = CliRunner().invoke(main, ["serve", "--help"])
    assert (done.exit_code, done.stderr) == (2, "penstock: two protocols have one port\n")


def test_help_and_version() -> None:
    text = penstock("-h").out
    assert all(name in text for name in COMMANDS)
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\S* \(from source.*\)\n", penstock("--version").out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = penstock("completion", shell)
    assert script.code == 0
    assert "_PENSTOCK_COMPLETE" in script.out


def test_completion_completes() -> None:
    option = penstock(_PENSTOCK_COMPLETE="bash_complete", COMP_WORDS="penstock serve --dur", COMP_CWORD="2")
    assert "--durability" in option.out
    command = penstock(_PENSTOCK_COMPLETE="bash_complete", COMP_WORDS="penstock que", COMP_CWORD="1")
    assert command.out.split() == ["plain,queues", "plain,queue"]


def test_the_help_imports_no_command() -> None:
    loaded = "import sys; from penstock.cli.main import main; main(['--help'], standalone_mode=False); "
    loaded += "print([name for name in sys.modules if name.startswith('penstock.server') or name == 'rich'])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True).splitlines()[-1] == "[]"


class TestShipped:
    def test_the_command_is_an_entry_point(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        module, _, name = project["scripts"]["penstock"].partition(":")
        assert (module, name) == (entry.main.__module__, "main")

    def test_the_systemd_unit_checks_starts_and_uses_the_exit_codes(self) -> None:
        unit = (ROOT / "packaging" / "penstock.service").read_text()
        assert "Type=notify" in unit
        assert "RestartPreventExitStatus=2 3 5\n" in unit
        for line in re.findall(r"^Exec\w+=/usr/local/bin/(penstock .*)$", unit, re.MULTILINE):
            assert set(re.findall(r"--[a-z-]+", line)) <= {"--config", "--data"}

    def test_the_image_starts_a_broker_with_existing_flags(self) -> None:
        text = (ROOT / "Dockerfile").read_text()
        command = re.findall(r'"([^"]*)"', text.rpartition("CMD [")[2])
        [serve] = [found for path, found in ALL if path == ("serve",)]
        with serve.make_context("serve", command[1:]) as context:
            assert context.params["phpmq"] == ("0.0.0.0:9100",)

    def test_the_image_runs_compiled_and_has_no_compiler(self) -> None:
        build, final = (ROOT / "Dockerfile").read_text().split("\nFROM python")[1:]
        assert ("gcc" in build, "gcc" in final) == (True, False)
        assert "ENV HATCH_BUILD_HOOK_ENABLE_CUSTOM=true" in build
        assert "RUN penstock compile --check" in final
        assert "src/penstock/compiled/native" in (ROOT / ".dockerignore").read_text().splitlines()


def test_ctrl_c_while_a_command_is_imported() -> None:
    program = """
import sys
from penstock.cli import entry

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Impatient())
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
