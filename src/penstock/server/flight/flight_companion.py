"""The Flight endpoint's process: whether the broker has one, and its settings."""

from __future__ import annotations

from importlib.util import find_spec

from msgspec.structs import asdict

from penstock.companions.settings import CompanionSettings
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.logs import Logger
from penstock.server.network.listeners import ListenError
from penstock.server.options.broker_options import DEFAULT_FLIGHT, BrokerOptions


def flight_settings(options: BrokerOptions, log: Logger) -> CompanionSettings | None:
    """The endpoint's settings, without the journal and the broker's socket; None if there is no endpoint.

    Raises ListenError if one is configured but can't run.
    """
    flight = options.flight
    if flight is None:
        return None
    reason = "" if find_spec("pyarrow") is not None else "it needs pyarrow: pip install 'penstock[flight]'"
    if reason and flight is not DEFAULT_FLIGHT:
        raise ListenError(f"flight cannot listen on {flight.address}: {reason}")
    if reason:
        log.info("no Flight endpoint", reason=reason)
        return None
    return CompanionSettings(**asdict(flight))


def flight_process(settings: CompanionSettings, log: Logger) -> CompanionProcess:
    """The endpoint's process, not started yet."""
    quiet = {"GRPC_VERBOSITY": "NONE"}  # otherwise it prints a line for every failed handshake
    return CompanionProcess("penstock.flight", "the Flight endpoint", settings, log, quiet)
