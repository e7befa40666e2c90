"""The Flight endpoint's process: whether there is one, and how it is to be."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.endpoint.settings import EndpointSettings
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.logs import Logger
from penstock.server.network.listeners import ListenError
from penstock.server.options.broker_options import DEFAULT_FLIGHT, BrokerOptions


def wanted_settings(options: BrokerOptions, log: Logger) -> EndpointSettings | None:
    """How the endpoint is to be, but for the journal and the broker's socket; None for none.

    Raises ListenError if it was asked for and can't be.
    """
    flight = options.flight
    if flight is None:
        return None
    reason = "" if find_spec("pyarrow") is not None else "it needs pyarrow: pip install 'penstock[flight]'"
    if reason and flight is not DEFAULT_FLIGHT:
        raise ListenError(f"flight can not listen on {flight.address}: {reason}")
    if reason:
        log.info("no Flight endpoint", reason=reason)
        return None
    return EndpointSettings(
        address=flight.address,
        tls_certificate=flight.tls_certificate,
        tls_key=flight.tls_key,
        tls_client_ca=flight.tls_client_ca,
    )


def flight_process(settings: EndpointSettings, log: Logger) -> CompanionProcess:
    """The process that it is."""
    quiet = {"GRPC_VERBOSITY": "NONE"}  # it would write a line for every bad handshake of a peer
    return CompanionProcess("penstock.flight", "the Flight endpoint", settings, log, quiet)
