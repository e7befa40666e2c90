"""What one caller can do to all others: requests that are made to hold a broker up, against a real one."""

from __future__ import annotations

from support.web import Api, WebBroker, path_of


def test_a_pattern_holds_nobody_up(broker: WebBroker, api: Api) -> None:
    """With the longest name that there is, and a token that may do next to nothing."""
    name = f"hostile/{'a' * 255}"
    api.do("PUT", f"queues/{path_of(name)}", {})
    viewer = api.token_for("viewer", ["view"], ["hostile/*"])
    for pattern in ("hostile/" + "*a" * 12 + "b", "*a" * 120 + "/" + "*?" * 120 + "b"):
        assert viewer.get("queues", pattern=pattern)["items"] == []
    assert viewer.get("queues", pattern="hostile/" + "*a" * 12)["total"] == 1
    assert Api(api.address).ask("GET", "/healthz").status == 200
