"""Tokens that were created over the API or at the first start. Only their hashes are kept.

They are in the data folder, or in a shared journal. A token is an additional access rule, over HTTP and Flight.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from typing_extensions import override

from penstock.admin.admin_requests import MakeToken, Token
from penstock.patterns import includes_every_queue
from penstock.server.companions.request_table import RequestRefused
from penstock.server.network.access import TokenRule
from penstock.server.options.broker_options import AccessRule
from penstock.server.options.listener_options import OptionError

NAME = "tokens.json"
#: Most tokens: a peer's token is compared with each.
MOST_TOKENS = 1_000
#: Random bytes of a token.
TOKEN_BYTES = 32
FIRST = "first admin"


class TokenRefused(RequestRefused):
    """The token is not created, or not revoked."""

    def __init__(self, text: str) -> None:
        super().__init__("conflict", text)


class TokensUnreadable(Exception):
    """The tokens can't be read. Starting without them would lock everyone out, or bring back a first admin token."""


class KeptTokens(Protocol):
    """The part of a ``ValueStore`` that keeps the tokens."""

    def get(self, name: str) -> bytes | None:
        """The value, or None."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a value, durably on return."""


class TokenFile(KeptTokens):
    """Keeps the tokens in a file that only the broker's user can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    @override
    def put(self, name: str, value: bytes) -> None:
        _write(self._folder / name, value)


class TokenStore:
    """All tokens. ``kept`` is None for a broker that keeps nothing."""

    def __init__(self, kept: KeptTokens | None) -> None:
        """Raises TokensUnreadable."""
        self._kept = kept
        self._writing = asyncio.Lock()
        self._tokens: dict[str, Token] = self._load()

    def __len__(self) -> int:
        return len(self._tokens)

    def listed(self) -> list[Token]:
        """All tokens, oldest first."""
        return sorted(self._tokens.values(), key=lambda token: token.created_at)

    def rules(self, now: int) -> list[TokenRule]:
        """Valid tokens as access rules."""
        return [
            TokenRule(id=token.id, name=token.name, token_sha256=token.sha256, may=token.may, where=token.where)
            for token in self._tokens.values()
            if not 0 < token.expires_at <= now
        ]

    async def add_first(self, token: str, now: int) -> None:
        """Make this text the first admin token. Only its hash is kept."""
        request = MakeToken(name=FIRST, sha256=digest(token), may=["admin", "administer"], where=["*"], by="penstock")
        await self.add(request, now)

    async def add(self, request: MakeToken, now: int) -> Token:
        """Add a token. Raises TokenRefused, OSError or LogError."""
        async with self._writing:
            return await self._add(request, now)

    async def _add(self, request: MakeToken, now: int) -> Token:
        if len(self._tokens) >= MOST_TOKENS:
            raise TokenRefused(f"there are {MOST_TOKENS} tokens already: revoke unused ones")
        if any(token.sha256 == request.sha256 for token in self._tokens.values()):
            raise TokenRefused("this token already exists")
        try:
            AccessRule(name=request.name, token_sha256=request.sha256, may=request.may, where=request.where)
        except OptionError as error:
            raise TokenRefused(f"{error.path[0]}: {error}") from None
        token = Token(
            id=secrets.token_hex(6),
            name=request.name,
            sha256=request.sha256,
            may=request.may,
            where=request.where,
            created_at=now,
            created_by=request.by,
            expires_at=request.expires_at,
        )
        await self._replace({**self._tokens, token.id: token})
        return token

    async def revoke(self, token_id: str, now: int) -> Token | None:
        """Remove a token and return it, or None. Raises TokenRefused for the last admin token, or as ``add``."""
        async with self._writing:
            return await self._revoke(token_id, now)

    async def _revoke(self, token_id: str, now: int) -> Token | None:
        token = self._tokens.get(token_id)
        if token is None:
            return None
        rest = {each: kept for each, kept in self._tokens.items() if each != token_id}
        if _is_admin(token, now) and not any(_is_admin(each, now) for each in rest.values()):
            raise TokenRefused("this is the last admin token: make another one first")
        await self._replace(rest)
        return token

    async def _replace(self, tokens: dict[str, Token]) -> None:
        """Keep these tokens, then use them. It may take as long as a commit."""
        if self._kept is not None:
            await asyncio.to_thread(self._kept.put, NAME, msgspec.json.encode(list(tokens.values())))
        self._tokens = tokens

    def _load(self) -> dict[str, Token]:
        try:
            data = self._kept.get(NAME) if self._kept is not None else None
            found = msgspec.json.decode(data, type=list[Token]) if data is not None else []
        except (OSError, msgspec.MsgspecError) as error:
            raise TokensUnreadable(
                f"{NAME}: {error}; restore it, or remove it: then a new first admin token is made, and all others are"
                f" void"
            ) from None
        return {token.id: token for token in found}


def new_token() -> str:
    """A random token."""
    return f"pk_{secrets.token_urlsafe(TOKEN_BYTES)}"


def digest(token: str) -> str:
    """The hash that is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def write_token_file(path: Path, token: str) -> None:
    """Write a token to a file that only the broker's user can read. Raises OSError."""
    _write(path, f"{token}\n".encode())


def admin_tokens(tokens: Sequence[Token], now: int) -> bool:
    """Whether there is a valid admin token for all queues."""
    return any(_is_admin(token, now) for token in tokens)


def _is_admin(token: Token, now: int) -> bool:
    everywhere = any(map(includes_every_queue, token.where))
    return "admin" in token.may and everywhere and not 0 < token.expires_at <= now


def _write(path: Path, data: bytes) -> None:
    """Replace a file atomically, readable by the broker's user alone, with a temporary name that no one can guess."""
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
