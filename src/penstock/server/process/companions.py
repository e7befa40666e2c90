"""The companion processes of a broker, and their private socket.

A broker on a journal of its own starts them when it serves. On a shared journal the HTTP process runs all the time, so
that it can answer that this broker stands by; the Flight endpoint runs only while the broker serves.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.admin.settings import AdminSettings
from penstock.companions.settings import CompanionSettings
from penstock.server.admin.http_companion import http_process, http_settings
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.companions.private_socket import NoteStore, PrivateSocket
from penstock.server.companions.request_table import Answers
from penstock.server.flight.flight_companion import flight_process, flight_settings
from penstock.server.logs import Logger
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.readiness import Listening


class Companions:
    """Starts and ends them. Those that run already are left alone."""

    def __init__(self, options: BrokerOptions, log: Logger) -> None:
        """Raises ListenError for one that was configured but can't run."""
        self._log = log
        self._flight: CompanionSettings | None = flight_settings(options, log)
        self._http: AdminSettings | None = http_settings(options, log)
        self._socket: PrivateSocket | None = None
        #: Running processes by their name in the ready file.
        self.running: dict[str, CompanionProcess] = {}

    @property
    def has_http(self) -> bool:
        """Whether an HTTP process is configured."""
        return self._http is not None

    @property
    def listening(self) -> list[Listening]:
        """The addresses of running processes."""
        return [Listening(name, process.address) for name, process in self.running.items() if process.address]

    async def open_socket(self, answers: Answers, notes: NoteStore | None) -> None:
        """Open the socket, or replace what answers on it. Raises OSError."""
        if self._socket is not None:
            self._socket.answer_with(answers)
            return
        private = PrivateSocket(self._log, answers, notes)
        await private.open()
        self._socket = private

    async def start(self, journal: str, *, flight: bool) -> None:
        """Start the HTTP process, and the Flight endpoint if ``flight``. Raises ListenError."""
        assert self._socket is not None
        where = {"journal": journal, "broker_socket": self._socket.path}
        new: dict[str, CompanionProcess] = {}
        if flight and self._flight is not None:
            new["flight"] = flight_process(replace(self._flight, **where), self._log)
        if self._http is not None and "http" not in self.running:
            new["http"] = http_process(replace(self._http, **where), self._log)
        self.running |= new
        await asyncio.gather(*(each.start() for each in new.values()))

    async def stop_flight(self) -> None:
        """End the Flight endpoint."""
        endpoint = self.running.pop("flight", None)
        if endpoint is not None:
            await endpoint.stop()

    async def close_socket(self, seconds: float) -> None:
        """Close the socket, after up to ``seconds`` for answers in progress."""
        if self._socket is not None:
            private, self._socket = self._socket, None
            await private.close(seconds)

    async def close(self) -> None:
        """End the processes, and close the socket."""
        await self.close_socket(0)
        running, self.running = self.running, {}
        await asyncio.gather(*(each.stop() for each in running.values()))

    def reload_certificates(self) -> None:
        """Restart processes that have certificates, with the current files."""
        for name, endpoint in self.running.items():
            if endpoint.reload_certificate():
                self._log.info("certificate read again", protocol=name, address=endpoint.address)
