"""The settings that the broker sends to the HTTP process when it starts it."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.companions.settings import CompanionSettings


class AdminSettings(CompanionSettings, frozen=True, kw_only=True):
    """Settings of the HTTP process, and the parts of the broker's configuration that it shows."""

    version: str
    #: Whether the broker's code is compiled: see ``penstock.compiled``.
    code: str
    #: The title of each protocol, by name.
    protocols: dict[str, str] = msgspec.field(default_factory=dict)
    #: The data folder, for the state of the HTTP process; if empty, the state is in memory only.
    data: str
    #: The folder of a journal in files; empty if it is in memory or in a database.
    folder: str = ""
    #: As in ``HttpListener``.
    public_url: str = ""
    host_names: list[str] = msgspec.field(default_factory=list)
    proxy_from: list[str] = msgspec.field(default_factory=list)
    public_metrics: bool = False
    backups: str = ""
    lake: str = ""
    #: The URL for traces, or empty; the share of messages that are traced, and patterns of their queues.
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    traces_queues: list[str] = msgspec.field(default_factory=list)
    payload_bytes: int = 16 * 2**20
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    durability: str = "commit"
    retention_seconds: int = 0
    retention_bytes: int = 0
    min_free_bytes: int = 0
