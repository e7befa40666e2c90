"""``penstock serve``: run the broker."""

from __future__ import annotations

import os
from typing import Any, get_args, get_type_hints

import click

from penstock.protocols import Protocol, protocols
from penstock.server.options.broker_options import JournalOptions, LogOptions
from penstock.server.options.configuration import layers
from penstock.server.process.serve import serve

#: The flags that set an option, and its path.
PATHS: dict[str, tuple[str, ...]] = {
    "data": ("data",),
    "journal": ("journal", "url"),
    **{name: (name,) for name in protocols()},
    "flight": ("flight",),
    "http": ("http",),
    "public_url": ("http", "public_url"),
    "admin_token_file": ("admin_token_file",),
    "otlp": ("traces", "endpoint"),
    "durability": ("journal", "durability"),
    "ephemeral": ("ephemeral",),
    "ready_file": ("ready_file",),
    "insecure_bind": ("insecure_bind",),
    "drain_seconds": ("drain_seconds",),
    "log_level": ("log", "level"),
    "log_format": ("log", "format"),
}


def _choice(table: type, name: str) -> click.Choice[str]:
    """The values of an option."""
    return click.Choice(get_args(get_type_hints(table)[name]))


def _listener_option(protocol: Protocol) -> Any:
    text = f"Speak {protocol.title} here. [default: {protocol.default_address}]"
    return click.option(f"--{protocol.name}", metavar="ADDR", multiple=True, help=text)


def flags_of(given: dict[str, Any]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """The flags that were given, as a layer of the configuration."""
    found = {name: value for name, value in given.items() if value is not None and value is not False and value != ()}
    return {
        f"--{name.replace('_', '-')}": (PATHS[name], list(value) if isinstance(value, tuple) else value)
        for name, value in found.items()
    }


def options(command: Any) -> Any:
    """The options that ``serve`` and ``config`` share."""
    for each in reversed(
        [
            click.option("--config", "config", metavar="FILE", help="Read options from this TOML file first."),
            click.option("--data", metavar="DIR", help="The data folder. [default: ./penstock-data]"),
            click.option(
                "--journal",
                metavar="URL",
                help="A database for the journal, as in postgresql://mq@db.example.com/penstock: several brokers take "
                "turns on it. [default: files in the data folder]",
            ),
            *(_listener_option(protocol) for protocol in protocols().values()),
            click.option("--flight", metavar="ADDR", help="Arrow Flight, for tables. [default: 127.0.0.1:8815]"),
            click.option("--http", metavar="ADDR", help="HTTP: API, metrics, console. [default: 127.0.0.1:9180]"),
            click.option(
                "--public-url",
                metavar="URL",
                help="Where browsers reach the console behind a reverse proxy, as in https://mq.example.com.",
            ),
            click.option(
                "--admin-token-file",
                metavar="FILE",
                help="Write the first admin token to this private file. [default: the terminal; without one, "
                "admin-token in the data folder]",
            ),
            click.option("--otlp", metavar="URL", help="Send traces to the OpenTelemetry collector here."),
            click.option(
                "--durability",
                type=_choice(JournalOptions, "durability"),
                help="commit: nothing is confirmed before it is on disk. interval: the same, with a write every 50 ms. "
                "os: the system decides when to write. [default: commit]",
            ),
            click.option("--ephemeral", is_flag=True, help="Keep everything in memory only."),
            click.option("--insecure-bind", is_flag=True, help="Listen to other machines without TLS."),
            click.option("--ready-file", metavar="FILE", help="Write a JSON file once all listeners accept."),
            click.option("--drain-seconds", type=float, metavar="S", help="How long a stop may take. [default: 10]"),
            click.option("--log-level", type=_choice(LogOptions, "level"), help="[default: info]"),
            click.option(
                "--log-format",
                type=_choice(LogOptions, "format"),
                help="auto: readable on a terminal, else JSON. [default: auto]",
            ),
        ]
    ):
        command = each(command)
    return command


@click.command("serve")
@options
def command(config: str | None, **given: Any) -> int:
    """Run the broker, until SIGTERM or Ctrl-C.

    Options come from the defaults, then the --config file (or $PENSTOCK_CONFIG), then PENSTOCK_… variables, then
    flags; `penstock config show` shows the result. penstock.example.toml lists every option.

    ADDR is host:port (port 0: a free one), [ipv6]:port or unix:PATH, then options of the listener after commas; `off`
    for none. All but --flight and --http may be repeated. Addresses that other machines can reach need TLS or
    --insecure-bind.

    A first SIGTERM or SIGINT drains: no new clients, messages that are out go back, everything is written to disk. A
    second one stops at once. SIGHUP reloads TLS certificates.

    \b
    Examples:
      penstock serve
      penstock serve --data /var/lib/penstock --config /etc/penstock.toml
      penstock serve --phpmq 127.0.0.1:0 --sspq off --kokaq unix:/run/penstock/kokaq.sock
      penstock serve --phpmq 127.0.0.1:9100 --phpmq 127.0.0.1:9101,dialect=32
      penstock serve --sspq 127.0.0.1:8888,queue=default/jobs --kokaq 127.0.0.1:9420,create_queues=true
      penstock serve --phpmq 0.0.0.0:9100,tls_certificate=cert.pem,tls_key=key.pem

    \b
    Exit codes:
      0  stopped cleanly
      1  failed: the disk, for instance; nothing was confirmed after that
      2  wrong use: an invalid flag, variable or file
      3  refused: the journal is in use, damaged or newer than this version, or an address can't be listened on
      5  the database has lost commits, or no longer has a journal: an operator must decide before it can start
    """
    found = layers(config, os.environ, flags_of(given))
    return serve(found.options(), found.variables)
