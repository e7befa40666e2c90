"""``penstock pipeline`` reports mistakes within seconds, before it starts Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock.cli.pipeline import archive
from penstock.cli.pipeline.running import finish
from penstock.spark.pipelines.archive.payload_formats import FORMATS
from penstock.spark.pipelines.archive.sinks import SINKS, SinkFlag, SinkKind
from penstock.spark.pipelines.run import PipelineProgress
from support.commands import penstock

COMMANDS = ("archive", "insight", "replay", "decode", "init", "submit-file")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str) -> None:
    done = penstock("pipeline", command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out


def test_kinds_and_formats_are_those_of_the_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """They appear in the choices, in the help and on the page. A kind's own flags are options."""
    done = penstock("pipeline", "archive", "--help")
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert f"--kind [{'|'.join(SINKS)}]" in done.out
    assert f"--format [{'|'.join(FORMATS)}]" in done.out
    for kind in SINKS.values():
        assert kind.title in " ".join(done.out.split())
        assert f"`{kind.name}`" in page
    for name in FORMATS:
        assert f"| `{name}` |" in page
    flag = SinkFlag("batch-size", "N", "Rows of an insert.")
    monkeypatch.setitem(SINKS, "other", SinkKind("other", "Other", "other:Sink", (flag,)))
    (option,) = archive.sink_options()
    command = option(click.Command("archive"))
    assert command.params[0].help == "Rows of an insert. Only with --kind other."
    assert archive.sink_values({"batch_size": "7"}) == {"batch-size": "7"}
    assert archive.sink_values({"batch_size": None}) == {}


def test_an_unknown_pipeline_or_option() -> None:
    done = penstock("pipeline", "arhcive")
    assert (done.code, "No such command 'arhcive'" in done.err) == (2, True)
    done = penstock("pipeline", "archive", "--nosuch")
    assert (done.code, "No such option" in done.err) == (2, True)
    done = penstock("pipeline", "archive", "--option", "nosuch=1")
    assert (done.code, "nosuch" in done.err) == (2, True)
    done = penstock("pipeline", "archive", "--conf", "x")
    assert (done.code, "--conf is KEY=VALUE, not 'x'" in done.err) == (2, True)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", [("archive",), ("insight",), ("replay", "--to", "default/x")])
def test_an_unreachable_broker(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"grpc://127.0.0.1:{taken.getsockname()[1]}"
        done = penstock("pipeline", *command, "--lake", tmp_path / "lake", "--endpoint", endpoint)
    assert done.code == 1
    assert endpoint in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "lake").exists()


def test_a_completed_replay_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    done = PipelineProgress(done=True, before_rows=1_234, total_rows=1_234)
    assert finish(done, {"as_json": False}) == 0
    assert "already done: all of its 1,234 rows" in capsys.readouterr().err
    assert finish(done, {"as_json": True}) == 0
    assert '"before_rows":1234' in capsys.readouterr().out.replace(" ", "")


def test_invalid_lakes_and_files(tmp_path: Path) -> None:
    for lake, options, message in (
        ("ftp://host/x", (), "a local folder or s3://BUCKET/PATH"),
        ("s3://", (), "which bucket?"),
        ("s3://bucket/x", ("--store", "password=x"), "no store option 'password'"),
        ("s3://bucket/x", ("--store", "key=x"), "has a key but no secret"),
        ("s3://bucket/x", ("--store", "endpoint=host:1"), "is a URL like https://s3.example.com"),
        ("s3://bucket/x", ("--store", f"secret=@{tmp_path}/none"), "can't be read from"),
        (tmp_path, ("--store", "region=x"), "store options are for s3://"),
    ):
        done = penstock("pipeline", "archive", "--lake", lake, "--once", *options, AWS_SECRET_ACCESS_KEY="")
        assert (done.code, message in done.err) == (3, True), done.err
    done = penstock("pipeline", "insight", "--lake", "s3://bucket/x", "--once", "--endpoint", "grpc://127.0.0.1:9")
    assert done.code != 0
    done = penstock("pipeline", "archive", "--table", "../up", "--once")
    assert (done.code, "is not a valid table name" in done.err) == (2, True)
    done = penstock("pipeline", "decode", tmp_path / "nothing")
    assert (done.code, "there is no file" in done.err) == (2, True)


def test_init_makes_a_project_once(tmp_path: Path) -> None:
    folder = tmp_path / "my-project"
    done = penstock("pipeline", "init", folder, "--endpoint", "grpc://127.0.0.1:9")
    assert done.code == 0
    assert 'penstock.endpoint: "grpc://127.0.0.1:9"' in (folder / "spark-pipeline.yml").read_text()
    done = penstock("pipeline", "init", folder)
    assert (done.code, "is not empty" in done.err) == (3, True)
    done = penstock("pipeline", "init", tmp_path / "my project")
    assert (done.code, "choose one of letters, digits" in done.err) == (3, True)
    assert not (tmp_path / "my project").exists()
    done = penstock("pipeline", "init", tmp_path / "other", "--endpoint", "http://127.0.0.1:9180")
    assert (done.code, "as in grpc://" in done.err, (tmp_path / "other").exists()) == (2, True, False)


def test_the_file_for_spark_submit_is_the_command() -> None:
    done = penstock("pipeline", "submit-file")
    run = subprocess.run(
        [sys.executable, done.out.strip(), "init", "--help"], capture_output=True, text=True, check=True
    )
    assert "Create a Declarative Pipelines project" in run.stdout
