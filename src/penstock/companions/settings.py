"""The settings of every companion process: see ``process_reports``."""

from __future__ import annotations

import msgspec


class CompanionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, with which certificate, and where to find the journal and the broker."""

    #: The URL of the journal: see ``journal.open_journal``.
    journal: str = ""
    #: Such as "127.0.0.1:8815", "[::1]:0" or "unix:/run/penstock/flight.sock".
    address: str
    #: PEM files.
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    #: The broker's private socket: see ``framing``.
    broker_socket: str = ""
