"""The HTTP process: whether the broker has one, its settings, and the first admin token."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import asdict

from penstock import compiled
from penstock.admin.settings import AdminSettings
from penstock.protocols import protocols
from penstock.server.admin.tokens import TokenStore, admin_tokens, new_token, write_token_file
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.logs import Logger
from penstock.server.network.listeners import ListenError
from penstock.server.options.broker_options import DEFAULT_HTTP, BrokerOptions

#: Its name in the data folder, if there is no terminal to print it on.
TOKEN_FILE = "admin-token"


def http_settings(options: BrokerOptions, log: Logger) -> AdminSettings | None:
    """The process's settings, still without the journal and the broker's socket; None if there is no process.

    Raises ListenError if one is configured but can't run.
    """
    http = options.http
    if http is None:
        return None
    if find_spec("uvicorn") is None:
        reason = "it needs uvicorn: pip install 'penstock[http]'"
        if http is not DEFAULT_HTTP or options.traces.endpoint:
            raise ListenError(f"http cannot listen on {http.address}: {reason}")
        log.info("no HTTP", reason=reason)
        return None
    if options.traces.endpoint and not _has_otlp():
        raise ListenError("traces.endpoint needs opentelemetry-proto: pip install 'penstock[otel]'")
    data = os.path.abspath(options.data)
    journal, limits = options.journal, options.limits
    listener = asdict(http)
    listener["backups"] = os.path.abspath(http.backups) if http.backups else default_backups(data)
    listener["lake"] = os.path.abspath(http.lake) if http.lake else ""
    return AdminSettings(
        version=version("penstock"),
        code=compiled.state.value,
        protocols={name: protocol.title for name, protocol in protocols().items()},
        data="" if options.ephemeral else data,
        folder="" if options.ephemeral or journal.url else data,
        **listener,
        traces_endpoint=options.traces.endpoint,
        traces_ratio=options.traces.ratio,
        traces_queues=options.traces.queues,
        payload_bytes=limits.payload_bytes,
        limits=asdict(limits),
        durability="memory" if options.ephemeral else journal.durability,
        retention_seconds=journal.retention_seconds,
        retention_bytes=journal.retention_bytes,
        min_free_bytes=journal.min_free_bytes,
    )


def default_backups(data: str) -> str:
    """The default folder of backups: beside the data folder, or in it if only that can be written."""
    beside = there = f"{data}-backups"
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return beside if os.access(there, os.W_OK | os.X_OK) else os.path.join(data, "backups")


def _has_otlp() -> bool:
    try:
        return find_spec("opentelemetry.proto") is not None and find_spec("pyarrow") is not None
    except ModuleNotFoundError:
        return False


def http_process(settings: AdminSettings, log: Logger) -> CompanionProcess:
    """The HTTP process, not started yet."""
    return CompanionProcess("penstock.admin", "the HTTP process", settings, log)


async def first_token(options: BrokerOptions, tokens: TokenStore, now: int, log: Logger) -> None:
    """Create the first admin token if there is none, and show it once. Raises ListenError or OSError."""
    if admin_tokens(tokens.listed(), now) or any("admin" in rule.may for rule in options.access):
        return
    token = new_token()
    path = _token_file(options)
    if path is None and not sys.stderr.isatty():
        log.warning("no first admin token is made", reason="nothing is kept: start with --admin-token-file FILE")
        return
    if path is not None:  # first of all: an admin token that no one has seen would lock everyone out
        try:
            write_token_file(path, token)
        except OSError as error:
            reason = f"--admin-token-file {path} cannot be written: {error.strerror}"
            raise ListenError(f"http has no first admin token: {reason}") from None
    await tokens.add_first(token, now)
    if path is not None:
        log.info("the first admin token is in a file", file=str(path))
    else:
        print(f"penstock: the first admin token, shown this once: {token}", file=sys.stderr, flush=True)


def _token_file(options: BrokerOptions) -> Path | None:
    """The file for the first token; None: print it on the terminal.

    Without a terminal, standard error is a log: it is kept and forwarded, and its readers would become admins.
    """
    if options.admin_token_file:
        return Path(options.admin_token_file)
    if sys.stderr.isatty() or options.ephemeral:
        return None
    return Path(os.path.abspath(options.data)) / TOKEN_FILE
