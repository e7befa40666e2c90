"""The way into the console: a link with a token of its own, which holds for this run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from penstock.admin.access import LOGIN_SECONDS
from penstock.admin.resources.access import NewToken, TokenMade
from penstock.admin.resources.common import Done
from penstock.cli.api import Api
from penstock.cli.errors import CommandError


class LoginLink(NamedTuple):
    """A link that logs in whoever opens it. The token stands behind the #, which no server and no log sees."""

    api: Api
    link: str
    token_id: str

    def revoke(self) -> None:
        """The link, and the logins by it, are worth nothing any more."""
        with suppress(CommandError):  # the broker has gone, and the token ends by itself
            self.api.ask("revoke-token", Done, self.token_id)


def log_in(address: str, token_file: Path) -> LoginLink | None:
    """A link for the console there; None without the admin token: this data has been another's before."""
    if not token_file.exists():
        return None
    api = Api(address, token_file.read_text().strip())
    wish = NewToken(name="penstock up", may=["admin"], expires_in_seconds=LOGIN_SECONDS)
    try:
        made = api.ask("create-token", TokenMade, body=wish)
    except CommandError:
        return None
    return LoginLink(api, f"{address}/#/login?{urlencode({'token': made.token})}", made.summary.id)
