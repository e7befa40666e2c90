"""The processes beside the broker, and the private socket on which they ask it.

On a journal of its own the broker opens them when it serves. On one that others may take over, the HTTP process is
there all the while, so that whoever asks is told that this broker stands by; the Flight endpoint listens only while it
serves.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.admin.settings import AdminSettings
from penstock.endpoint.settings import EndpointSettings
from penstock.server.admin.http_companion import http_process, wanted_http
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.companions.private_socket import NoteStore, PrivateSocket
from penstock.server.companions.request_table import Answers
from penstock.server.flight.flight_companion import flight_process, wanted_settings
from penstock.server.logs import Logger
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.readiness import Listening


class Companions:
    """Starts and ends them. What is on already stays on."""

    def __init__(self, options: BrokerOptions, log: Logger) -> None:
        """Raises ListenError if one was asked for and can't be."""
        self._log = log
        self._flight: EndpointSettings | None = wanted_settings(options, log)
        self._http: AdminSettings | None = wanted_http(options, log)
        self._socket: PrivateSocket | None = None
        #: Those that run, by what the ready file calls them.
        self.running: dict[str, CompanionProcess] = {}

    @property
    def has_http(self) -> bool:
        """Whether there is, or will be, an HTTP process."""
        return self._http is not None

    @property
    def listening(self) -> list[Listening]:
        """Where they listen."""
        return [Listening(name, process.address) for name, process in self.running.items() if process.address]

    async def open_socket(self, answers: Answers, notes: NoteStore | None) -> None:
        """Have requests answered by these from now on. Raises OSError."""
        if self._socket is not None:
            self._socket.answer_with(answers)
            return
        private = PrivateSocket(self._log, answers, notes)
        await private.open()
        self._socket = private

    async def start(self, journal: str, *, flight: bool) -> None:
        """Start those that do not run: the HTTP process, and the endpoint if it is wanted. Raises ListenError."""
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
        """End the Flight endpoint: another broker has one now."""
        endpoint = self.running.pop("flight", None)
        if endpoint is not None:
            await endpoint.stop()

    async def close_socket(self, seconds: float) -> None:
        """Take no more requests; answers that are due may take so long."""
        if self._socket is not None:
            private, self._socket = self._socket, None
            await private.close(seconds)

    async def close(self) -> None:
        """End all of them, and the socket."""
        await self.close_socket(0)
        running, self.running = self.running, {}
        await asyncio.gather(*(each.stop() for each in running.values()))

    def reload_certificates(self) -> None:
        """Start those anew that have certificates, with the files as they are now."""
        for name, endpoint in self.running.items():
            if endpoint.reload_certificate():
                self._log.info("certificate read again", protocol=name, address=endpoint.address)
