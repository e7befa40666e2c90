"""What commands about readers and writers have in common: they ask over HTTP, or over Flight with ``--endpoint``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.admin.resources.common import Done
from penstock.cli.api import Api, ApiError, identity_options, token_of, url_option, with_options
from penstock.cli.errors import NOT_ENOUGH, OK, REFUSED, WRONG_USE, CommandError
from penstock.cli.output import note, print_json
from penstock.flight import calls

if TYPE_CHECKING:
    import pyarrow.flight as fl

#: Seconds that an answer may take.
PATIENCE = 30.0


def endpoint_options(command: Any) -> Any:
    """Where the broker is, over HTTP or over Flight, and who we are."""
    flight = click.option(
        "--endpoint",
        metavar="URL",
        help="Ask Flight, not HTTP: grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH; of several, with "
        "commas between them, the one that serves.",
    )
    return with_options(command, url_option, flight, *identity_options)


def over_flight(where: dict[str, Any]) -> dict[str, Any] | None:
    """The options for ``ask``; None if HTTP is to be asked, for which the options are left in place."""
    endpoint = where.pop("endpoint")
    if endpoint is None:
        return None
    return {"endpoint": endpoint, **{name: value for name, value in where.items() if name != "url"}}


def ask(
    action: calls.Action, answer: Any, *, endpoint: str, token: str | None, token_file: Path | None, **tls: Any
) -> Any:
    """The answer of the endpoint. Raises CommandError with what went wrong."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.flight as fl  # noqa: PLC0415

    shown = token_of(token, token_file)
    headers = [(b"authorization", f"Bearer {shown}".encode())] if shown else []
    request = fl.Action(str(action.__struct_config__.tag), msgspec.json.encode(action))
    *others, last = endpoint.split(",")
    for each in (*others, last):
        try:
            with fl.FlightClient(each, **_tls(**tls)) as client:
                [result] = client.do_action(request, fl.FlightCallOptions(timeout=PATIENCE, headers=headers))
                return msgspec.json.decode(result.body.to_pybytes(), type=answer)
        except fl.FlightUnavailableError as error:  # one of them serves, and those that stand by are not there
            if each == last:
                raise _explained(endpoint, error) from None
        except fl.FlightError as error:
            raise _explained(each, error) from None
        except (pa.ArrowException, OSError) as error:
            raise CommandError(f"{each}: {str(error).splitlines()[0]}", exit_code=WRONG_USE) from None
    raise AssertionError


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


def forget_name(
    kind: str, route: str, name: str, action: calls.Action, where: dict[str, Any], *, as_json: bool
) -> int:  # fmt: skip
    """Drop a reader or a writer, over HTTP or over Flight, and say whether there was one. Returns the exit code."""
    flight = over_flight(where)
    known = ask(action, bool, **flight) if flight is not None else _forgotten(Api.of(**where), route, name)
    if as_json:
        print_json({kind: name, "known": known})
    else:
        note(f"{name} is forgotten" if known else f"there is no {kind} {name}")
    return OK if known else NOT_ENOUGH


def _forgotten(api: Api, route: str, name: str) -> bool:
    try:
        return api.ask(route, Done, name).done
    except ApiError as error:
        if error.problem.code == "not-found":
            return False
        raise
