"""The table of protocols: one registration each. Everything that lists protocols reads this table.

A registration names the protocol's parts, one for each package that needs it, as ``module:attribute``. A part is
imported when it is asked for, so that a client does not load the server, and each package imports only what it may.

The protocols that come with Penstock are in :data:`BUILT_IN`. An installed distribution adds its own by an entry point
of the group ``penstock.protocols`` that leads to a :class:`Protocol`::

    [project.entry-points."penstock.protocols"]
    lines = "lines_protocol:LINES"

CONTRIBUTING.md goes through all parts of one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

#: The group of entry points by which distributions add protocols.
GROUP = "penstock.protocols"

Part = Literal["listener", "session", "client", "capture", "load"]


class ProtocolError(Exception):
    """A registration that can't be used. The text says whose it is, and what would be right."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One protocol. A part without a value does not exist, and ``part`` raises ProtocolError for it."""

    #: In URLs, flags, options, captures and logs: lower-case letters and digits.
    name: str
    #: In text for people.
    title: str
    #: The default port of listeners and clients.
    port: int
    #: Options of a listener: a subclass of ``penstock.server.options.listener_options.Listener``.
    listener: str
    #: A connection on the server's side: a subclass of ``penstock.server.network.session.Session``.
    session: str
    #: What a client knows: a ``penstock.client.protocol.ClientProtocol``.
    client: str = ""
    #: How captures are recognised and read: a ``penstock.spark.pipelines.decode.captures.Capture``.
    capture: str = ""
    #: How ``penstock bench`` makes load: a ``penstock.bench.load.Load``.
    load: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9]*", self.name):
            raise ProtocolError(f"the protocol {self.name!r} can't be named so: a name is a-z, then a-z and 0-9")
        if not 0 < self.port < 65536:
            raise ProtocolError(f"the protocol {self.name!r} has the port {self.port}: a port is 1 to 65535")

    @property
    def default_address(self) -> str:
        """Where a listener listens by default."""
        return f"127.0.0.1:{self.port}"

    def has(self, part: Part) -> bool:
        """Whether there is such a part."""
        return bool(getattr(self, part))

    def part(self, part: Part) -> Any:
        """Import a part. Raises ProtocolError if there is none, or none that can be imported."""
        place = getattr(self, part)
        if not place:
            raise ProtocolError(f"{self.title} has no {part}: its registration names none")
        module, _, attribute = place.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ProtocolError(f"{self.title}: its {part}, {place!r}, can't be imported: {error}") from error


BUILT_IN = (
    Protocol(
        name="phpmq",
        title="PHPMQ",
        port=9100,
        listener="penstock.server.protocols.phpmq.listener:PhpmqListener",
        session="penstock.server.protocols.phpmq.session:PhpmqSession",
        client="penstock.client.phpmq:CLIENT",
        capture="penstock.spark.pipelines.decode.phpmq:CAPTURE",
        load="penstock.bench.phpmq:LOAD",
    ),
    Protocol(
        name="sspq",
        title="SSPQ",
        port=8888,
        listener="penstock.server.protocols.sspq.listener:SspqListener",
        session="penstock.server.protocols.sspq.session:SspqSession",
        client="penstock.client.sspq:CLIENT",
        capture="penstock.spark.pipelines.decode.sspq:CAPTURE",
        load="penstock.bench.sspq:LOAD",
    ),
    Protocol(
        name="kokaq",
        title="Kokaq",
        port=9420,
        listener="penstock.server.protocols.kokaq.listener:KokaqListener",
        session="penstock.server.protocols.kokaq.session:KokaqSession",
        client="penstock.client.kokaq:CLIENT",
        capture="penstock.spark.pipelines.decode.kokaq:CAPTURE",
        load="penstock.bench.kokaq:LOAD",
    ),
)


@cache
def protocols() -> dict[str, Protocol]:
    """All protocols by name: those that come with Penstock, then those of other distributions, by their names."""
    found = {each.name: each for each in BUILT_IN}
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        added = _added(point)
        for known in found.values():
            if added.name == known.name or added.title == known.title or added.port == known.port:
                raise ProtocolError(
                    f"{_who(point)}: {added.title} ({added.name}, port {added.port}) has a name, a title or a port of "
                    f"{known.title} ({known.name}, port {known.port}); each protocol has its own"
                )
        found[added.name] = added
    return found


def having(part: Part) -> list[Protocol]:
    """The protocols that have such a part."""
    return [each for each in protocols().values() if each.has(part)]


def _added(point: EntryPoint) -> Protocol:
    try:
        added = point.load()
    except ProtocolError as error:
        raise ProtocolError(f"{_who(point)}: {error}") from None
    except (ImportError, AttributeError) as error:
        raise ProtocolError(f"{_who(point)} can't be imported: {error}") from error
    if not isinstance(added, Protocol):
        raise ProtocolError(f"{_who(point)} is a {type(added).__name__}, not a penstock.protocols.Protocol")
    return added


def _who(point: EntryPoint) -> str:
    owner = f" of {point.dist.name}" if point.dist is not None else ""
    return f"the protocol {point.name!r}{owner} (entry point {GROUP}, {point.value})"
