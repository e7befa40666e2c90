"""``penstock readers``: who reads the journal through the Flight endpoint, and how far behind they are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.output import json_option, note, say, tell
from penstock.flight import calls
from penstock.flight.requests import Reader

if TYPE_CHECKING:
    import pyarrow.flight as fl

OK, NOBODY = 0, 4
#: Seconds that an answer may take.
PATIENCE = 30.0
COLUMNS = ("READER", "VIEW", "OF", "POSITION", "BEHIND", "SECONDS", "LEASED", "PIN", "SEEN", "OWNER")


class _Denied(click.ClickException):
    """The access rules say no."""

    exit_code = 3


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


@click.group("readers", short_help="Who reads the journal, and how far behind they are.")
def command() -> None:
    """Who reads the journal through the Flight endpoint (Spark streams, mostly), and how far behind they are.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
      penstock readers forget nightly-export
      penstock readers list --endpoint grpc+tls://mq.example.com:8815 --ca ca.pem --token-file token

    Exit codes: 0 done, 1 nobody there, 2 wrong use, 3 refused by the access rules, 4 there is no such reader.
    """


@command.command("list", short_help="Show all readers.")
@endpoint_options
@json_option
def list_readers(as_json: bool, **where: Any) -> None:
    """Show all readers: what each reads, its position, the rows behind it and the age of the oldest, and its leases.

    PIN: retention waits for this reader, as far as the broker's limits allow. SEEN: seconds since it last said so.
    OWNER: the identity that the name belongs to; nobody's without access rules.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
    """
    found: list[Reader] = ask(calls.Readers(), list[Reader], **where)
    if as_json:
        for reader in found:
            tell(msgspec.to_builtins(reader))
    elif not found:
        note("nobody has said that they read")
    else:
        show_table(COLUMNS, map(_row, found))


@command.command("forget", short_help="Drop a reader.")
@click.argument("reader", metavar="NAME")
@endpoint_options
@json_option
def forget(reader: str, as_json: bool, **where: Any) -> int:
    """Drop a reader: retention waits for it no longer, and what it has leased goes back to the queues.

    For readers that will not come back. One that does is simply there again, from where it stands. Who may administer
    all queues drops any, everybody else its own.

    \b
    Examples:
      penstock readers forget nightly-export
    """
    known = ask(calls.ForgetReader(reader=reader), bool, **where)
    if as_json:
        tell({"reader": reader, "known": known})
    else:
        note(f"{reader} is forgotten" if known else f"there is no reader {reader}")
    return OK if known else NOBODY


def ask(action: calls.Action, answer: Any, *, endpoint: str, token_file: Path | None, **tls: Any) -> Any:
    """The answer of the endpoint. Raises ClickException with what went wrong."""
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.flight as fl  # noqa: PLC0415
    except ImportError:
        raise click.UsageError("this needs pyarrow: pip install 'penstock[flight]'") from None
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
        raise click.UsageError(f"{endpoint}: {str(error).splitlines()[0]}") from None


def _tls(ca: Path | None, certificate: Path | None, key: Path | None, server_name: str | None) -> dict[str, Any]:
    files = {"tls_root_certs": ca, "cert_chain": certificate, "private_key": key}
    given: dict[str, Any] = {name: path.read_bytes() for name, path in files.items() if path}
    return given | ({"override_hostname": server_name} if server_name else {})


def _explained(endpoint: str, error: fl.FlightError) -> click.ClickException:
    """The endpoint's own words where it has sent some; else what became of the connection."""
    if error.extra_info:
        problem = msgspec.json.decode(error.extra_info, type=calls.Problem)
        return (_Denied if problem.code == "denied" else click.ClickException)(f"{endpoint}: {problem.text}")
    return click.ClickException(f"{endpoint} does not answer: {str(error).splitlines()[0]}")


def show_table(columns: tuple[str, ...], found: Iterable[tuple[str, ...]]) -> None:
    """Rows below the names of their columns."""
    rows = [columns, *found]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    say(*("  ".join(f"{value:{width}}" for value, width in zip(row, widths, strict=True)).rstrip() for row in rows))


def _row(reader: Reader) -> tuple[str, ...]:
    seen = max(time.time() - reader.at / 1e6, 0)
    numbers = (str(reader.position), str(reader.lag_rows), f"{reader.lag_seconds:.1f}", str(reader.leased))
    return (
        reader.reader,
        reader.view,
        reader.where,
        *numbers,
        "yes" if reader.pin else "no",
        f"{seen:.0f}",
        reader.owner or "-",
    )
