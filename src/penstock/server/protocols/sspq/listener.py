"""The options of an SSPQ listener."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta
from typing_extensions import override

from penstock.server.options.listener_options import Listener, OptionError


class SspqListener(Listener, frozen=True, kw_only=True):
    """An SSPQ listener, which has one queue."""

    queue: str = "default/sspq"
    #: Every message gets this retry counter, whatever its sender says.
    force_retries: Annotated[int, Meta(ge=0, le=255)] | None = None
    #: False: a message whose retries run out is dropped, and asking for dead letters is declined.
    dead_letters: bool = True

    example: ClassVar[str] = "queue=default/jobs"

    def __post_init__(self) -> None:
        super().__post_init__()
        namespace, slash, name = self.queue.partition("/")
        if not (namespace and slash and name):
            raise OptionError("queue", f"a queue is namespace/name, as in default/sspq, not {self.queue!r}")

    @override
    def queues(self) -> dict[str, bool]:
        return {self.queue: self.dead_letters}
