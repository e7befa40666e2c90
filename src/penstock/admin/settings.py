"""What the HTTP process is told when it starts: see ``endpoint/lines.py``."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.endpoint.settings import EndpointSettings


class AdminSettings(EndpointSettings, frozen=True, kw_only=True):
    """How it is to be, and what it tells of the broker's configuration."""

    version: str
    #: How the broker's code runs: see ``penstock.compiled``.
    code: str
    #: The title of each protocol, by name.
    protocols: dict[str, str] = msgspec.field(default_factory=dict)
    #: The data folder, where its own state is kept; empty: nothing is kept.
    data: str
    #: The folder of a journal in files; empty: it is in memory, or in a database.
    folder: str = ""
    #: As in ``HttpListener``.
    public_url: str = ""
    host_names: list[str] = msgspec.field(default_factory=list)
    proxy_from: list[str] = msgspec.field(default_factory=list)
    public_metrics: bool = False
    backups: str = ""
    lake: str = ""
    #: Where traces are sent; empty: nowhere. The share of messages, and patterns of their queues.
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    traces_queues: list[str] = msgspec.field(default_factory=list)
    payload_bytes: int = 16 * 2**20
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    durability: str = "commit"
    retention_seconds: int = 0
    retention_bytes: int = 0
    min_free_bytes: int = 0
