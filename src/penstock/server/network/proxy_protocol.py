"""The PROXY protocol, version 2: a load balancer first names the client whose connection it forwards.

::

    signature (12) | version 2, command | family, transport | length (2) | addresses and additions (length)

The command LOCAL is the load balancer's own connection, most often a check whether we are there. Additions (TLVs) must
be well-formed, and are not looked at. See https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

from penstock.server.network.access import Peer

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
#: Bytes up to the length.
FIXED = 16
#: Bytes that may follow. Addresses have 216 at most; the rest is room for what load balancers add.
MOST = 4096

_LOCAL, _PROXY = 0x20, 0x21
#: Families and transports of streams, and the bytes that their addresses take.
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_SIZES = {_UNSPECIFIED: 0, _TCP4: 12, _TCP6: 36, _UNIX: 216}
_PORTS = struct.Struct(">HH")


class ProxyError(Exception):
    """What came is no header that we understand. The text says why."""


async def read_header(connection: socket.socket) -> Peer | None:
    """The client of a connection; None for the load balancer's own. Not a byte behind the header is read."""
    fixed = b""
    while len(fixed) < FIXED:
        fixed += await _some(connection, FIXED - len(fixed))
        check_beginning(fixed)
    rest = b""
    wanted = length_of(fixed)
    while len(rest) < wanted:
        rest += await _some(connection, wanted - len(rest))
    return client_of(fixed, rest)


async def _some(connection: socket.socket, most: int) -> bytes:
    found = await asyncio.get_running_loop().sock_recv(connection, most)
    if not found:
        raise ProxyError("the connection ended before its PROXY header did")
    return found


def check_beginning(data: bytes) -> None:
    """Raise as soon as it is clear that this begins no header: a client without one may wait for us to speak."""
    begun = data[: len(SIGNATURE)]
    if not SIGNATURE.startswith(begun):
        if b"PROXY ".startswith(begun[:6]):
            raise ProxyError("version 1 of the PROXY protocol is not understood; send version 2 (send-proxy-v2)")
        raise ProxyError("it does not begin with a PROXY header, as this listener's proxy_protocol asks for")


def length_of(fixed: bytes) -> int:
    """How many bytes follow the fixed part."""
    command, kind, length = fixed[12], fixed[13], int.from_bytes(fixed[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"version and command 0x{command:02x} are not known: there are 0x20 (LOCAL) and 0x21 (PROXY)")
    if length > MOST:
        raise ProxyError(f"its PROXY header has {length} bytes after the first {FIXED}, and {MOST} are the most")
    if command == _PROXY:
        if kind not in _SIZES:
            raise ProxyError(f"family and transport 0x{kind:02x} are no stream over IPv4, IPv6 or a Unix socket")
        if length < _SIZES[kind]:
            raise ProxyError(
                f"addresses of the kind 0x{kind:02x} have {_SIZES[kind]} bytes, and its header has {length}"
            )
    return length


def client_of(fixed: bytes, rest: bytes) -> Peer | None:
    """The client that a whole header names; None for the load balancer's own connection, and if it names none."""
    command, kind = fixed[12], fixed[13]
    if command == _LOCAL:
        return None
    _check_additions(rest[_SIZES[kind] :])
    if kind == _UNSPECIFIED:
        return None
    if kind == _UNIX:
        return Peer("unix")
    size = 4 if kind == _TCP4 else 16
    port, _ = _PORTS.unpack_from(rest, 2 * size)
    return Peer(str(ipaddress.ip_address(rest[:size])), port=port)


def _check_additions(data: bytes) -> None:
    at = 0
    while at < len(data):
        at += 3 + int.from_bytes(data[at + 1 : at + 3], "big")
    if at != len(data):
        raise ProxyError("what follows the addresses in its PROXY header is cut short")
