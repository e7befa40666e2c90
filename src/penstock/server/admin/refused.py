"""What is raised for a request that is not done."""

from __future__ import annotations

from penstock.admin.admin_requests import Refusal, RefusalCode


class RequestRefused(Exception):
    """The answer is a refusal."""

    def __init__(self, code: RefusalCode, text: str, field: str = "") -> None:
        super().__init__(text)
        self.refusal = Refusal(code=code, text=text, field=field)
