"""A link that logs in to the console, with a token that is revoked when the run ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from penstock.admin.gatekeeper import LOGIN_SECONDS
from penstock.admin.resources.access import NewToken, TokenMade
from penstock.admin.resources.common import Done
from penstock.cli.api import Api
from penstock.cli.errors import CommandError


class LoginLink(NamedTuple):
    """A link that logs in. Its token follows the #, so that no server and no log sees it."""

    api: Api
    link: str
    token_id: str

    def revoke(self) -> None:
        """End the token, and the logins by it."""
        with suppress(CommandError):  # the broker is gone, and the token ends by itself
            self.api.ask("revoke-token", Done, self.token_id)


def create_login_link(address: str, token_file: Path) -> LoginLink | None:
    """A link for the console there. None without the admin token, as with data of another broker."""
    if not token_file.exists():
        return None
    api = Api(address, token_file.read_text().strip())
    request = NewToken(name="penstock up", may=["admin"], expires_in_seconds=LOGIN_SECONDS)
    try:
        created = api.ask("create-token", TokenMade, body=request)
    except CommandError:
        return None
    return LoginLink(api, f"{address}/#/login?{urlencode({'token': created.token})}", created.summary.id)
