"""What commands that ask the Flight endpoint have in common: their options, the question, and the names they list."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.errors import NOT_ENOUGH, OK, REFUSED, WRONG_USE, CommandError
from penstock.cli.output import note, table, tell
from penstock.flight import calls

if TYPE_CHECKING:
    import pyarrow.flight as fl

#: Seconds that an answer may take.
PATIENCE = 30.0


def endpoint_options(command: Any) -> Any:
    """Where the endpoint is, and who we are."""
    for each in reversed(
        [
            click.option(
                "--endpoint",
                metavar="URL",
                default="grpc://127.0.0.1:8815",
                help="grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH. [default: grpc://127.0.0.1:8815]",
            ),
            click.option("--token-file", type=_file(), metavar="FILE", help="The token is in this file."),
            click.option("--ca", type=_file(), metavar="FILE", help="Trust certificates of this authority (PEM)."),
            click.option("--certificate", type=_file(), metavar="FILE", help="Our own certificate (PEM)."),
            click.option("--key", type=_file(), metavar="FILE", help="Its key (PEM)."),
            click.option("--server-name", metavar="NAME", help="The name that the certificate must have."),
        ]
    ):
        command = each(command)
    return command


def _file() -> click.Path:
    return click.Path(exists=True, dir_okay=False, path_type=Path)


def ask(action: calls.Action, answer: Any, *, endpoint: str, token_file: Path | None, **tls: Any) -> Any:
    """The answer of the endpoint. Raises CommandError with what went wrong."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.flight as fl  # noqa: PLC0415

    headers = [(b"authorization", b"Bearer " + token_file.read_bytes().strip())] if token_file else []
    try:
        with fl.FlightClient(endpoint, **_tls(**tls)) as client:
            body = msgspec.json.encode(action)
            options = fl.FlightCallOptions(timeout=PATIENCE, headers=headers)
            [result] = client.do_action(fl.Action(str(action.__struct_config__.tag), body), options)
            return msgspec.json.decode(result.body.to_pybytes(), type=answer)
    except fl.FlightError as error:
        raise _explained(endpoint, error) from None
    except (pa.ArrowException, OSError) as error:
        raise CommandError(f"{endpoint}: {str(error).splitlines()[0]}", exit_code=WRONG_USE) from None


def _tls(ca: Path | None, certificate: Path | None, key: Path | None, server_name: str | None) -> dict[str, Any]:
    files = {"tls_root_certs": ca, "cert_chain": certificate, "private_key": key}
    given: dict[str, Any] = {name: path.read_bytes() for name, path in files.items() if path}
    return given | ({"override_hostname": server_name} if server_name else {})


def _explained(endpoint: str, error: fl.FlightError) -> CommandError:
    """The endpoint's own words where it has sent some; else what became of the connection."""
    if not error.extra_info:
        return CommandError(f"{endpoint} does not answer: {str(error).splitlines()[0]}")
    problem = msgspec.json.decode(error.extra_info, type=calls.Problem)
    refused = {"exit_code": REFUSED} if problem.code == "denied" else {}
    return CommandError(f"{endpoint}: {problem.text}", **refused)


def show_all(
    found: Sequence[msgspec.Struct], columns: Sequence[str], row: Callable[[Any], Sequence[str]], *, as_json: bool,
    nothing: str,
) -> None:  # fmt: skip
    """A table of what was found, or a JSON value for each."""
    if as_json:
        for each in found:
            tell(msgspec.to_builtins(each))
    elif not found:
        note(nothing)
    else:
        table(columns, [row(each) for each in found])


def forgotten(kind: str, name: str, known: bool, *, as_json: bool) -> int:
    """Say whether there was such a name, which there is no longer. Returns the exit code."""
    if as_json:
        tell({kind: name, "known": known})
    else:
        note(f"{name} is forgotten" if known else f"there is no {kind} {name}")
    return OK if known else NOT_ENOUGH


def seconds_since(microseconds: int) -> str:
    """How long ago this was."""
    return f"{max(time.time() - microseconds / 1e6, 0):.0f}"
