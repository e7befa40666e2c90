"""Requests that several companion processes send: rights of their clients, and readers and writers by name."""

from __future__ import annotations

from heapq import nsmallest

from penstock.companions.readers_and_writers import DropReader, DropWriter, ReaderRow, Readers, WriterRow, Writers
from penstock.companions.rights import Allowed, AskRights
from penstock.schema import Reason
from penstock.server.companions.request_table import Handlers, yield_to_peers
from penstock.server.network.runtime import Runtime
from penstock.server.registry.names import check_writer


class SharedRequests:
    """Answers them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._readers = runtime.readers
        self.handlers: Handlers = {
            AskRights: self._rights,
            Readers: self._list_readers,
            Writers: self._list_writers,
            DropReader: self._drop_reader,
            DropWriter: self._drop_writer,
        }

    def _rights(self, request: AskRights) -> Allowed:
        return self._runtime.peers.allowed(request, self._runtime.now())

    def _list_readers(self, request: Readers) -> list[ReaderRow]:
        return self._readers.listed()

    def _list_writers(self, request: Writers) -> list[WriterRow]:
        writers = self._broker.writers
        names = [
            name
            for name, each in writers.items()
            if name > request.after and request.contains in name and request.owner in ("", each.owner)
        ]
        chosen = nsmallest(request.limit, names) if request.limit else sorted(names)
        return [
            WriterRow(writer=name, owner=each.owner, epoch=each.epoch, partitions=len(each.chunks), at=each.at)
            for name, each in ((name, writers[name]) for name in chosen)
        ]

    async def _drop_reader(self, request: DropReader) -> bool:
        """Return its leases one at a time, since each may have thousands of messages."""
        self._readers.check_owner(request.name, request.owner)
        async with self._readers.leasing:
            known = self._readers.forget(request.name)
            for lease in self._broker.leases_of(request.name):
                if lease.position in self._broker.leases:
                    self._broker.return_lease(lease, Reason.RELEASED, self._runtime.now())
                    known = True
                    await yield_to_peers(self._runtime)
        return known

    def _drop_writer(self, request: DropWriter) -> bool:
        check_writer(self._broker, request.name, request.owner)
        source = f"{request.over} {request.by}".rstrip().encode("utf-8", "replace")[:255]
        return self._broker.end_writer(request.name, self._runtime.now(), source)
