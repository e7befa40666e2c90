"""What the HTTP process is told when it starts: see ``endpoint/lines.py``."""

from __future__ import annotations

from typing import Any

import msgspec


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How it is to be, and what it tells of the broker's configuration."""

    version: str
    #: The data folder; empty: there is no journal on disk.
    data: str
    #: The URL of the journal: see ``journal.open_journal``.
    journal: str = ""
    #: As in "127.0.0.1:9180" or "unix:/run/penstock/http.sock".
    address: str
    #: PEM files.
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    #: The Unix socket on which the broker answers ``requests``.
    broker_socket: str = ""
    public_metrics: bool = False
    backups: str = ""
    lake: str = ""
    #: Where traces are sent; empty: nowhere. The share of messages, and patterns of their queues.
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    traces_queues: list[str] = []
    payload_bytes: int = 16 * 2**20
    limits: dict[str, Any] = {}
    durability: str = "commit"
    retention_seconds: int = 0
    retention_bytes: int = 0
    min_free_bytes: int = 0
