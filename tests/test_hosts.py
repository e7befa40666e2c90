"""The order in which hosts of a group are tried."""

from __future__ import annotations

from penstock.hosts import HostRing


def test_the_host_that_served_last_comes_first() -> None:
    ring = HostRing(["a", "b", "c"])
    assert ring.in_order() == ("a", "b", "c")
    ring.served("b")
    assert (ring.current, ring.in_order()) == ("b", ("b", "c", "a"))
    assert HostRing(["a", "b"], first="b").current == "b"
    assert HostRing(["a", "b"], first="gone").current == "a"


def test_all_failed_once_each_has_failed_since_one_served() -> None:
    ring = HostRing(["a", "b"])
    assert [ring.failed() for _ in range(4)] == [True, False, True, False]
    ring.failed()
    ring.served("b")
    assert ring.failed()
    assert not HostRing(["alone"]).failed()
