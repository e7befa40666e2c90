"""URLs: the meaning of each part, and the errors for wrong ones."""

from __future__ import annotations

import pytest

from penstock.client import TLS, BadURL, Reconnect
from penstock.client.urls import parse, split_name
from penstock.wire.kokaq import BitOrder, Numbering
from penstock.wire.phpmq import Dialect


@pytest.mark.parametrize(
    ("url", "protocol", "host", "port", "queue"),
    [
        ("phpmq://broker", "PHPMQ", "broker", 9100, None),
        ("phpmq://broker:1/jobs", "PHPMQ", "broker", 1, "jobs"),
        ("phpmq://broker/a/b%23%C3%A9", "PHPMQ", "broker", 9100, "a/b#é"),
        ("sspq://[::1]", "SSPQ", "::1", 8888, None),
        ("sspq://broker/", "SSPQ", "broker", 8888, None),
        ("kokaq://broker/default/jobs", "Kokaq", "broker", 9420, "default/jobs"),
        ("kokaq://broker/jobs", "Kokaq", "broker", 9420, "jobs"),
    ],
)
def test_tcp(url: str, protocol: str, host: str, port: int, queue: str | None) -> None:
    (address,), _ = parse(url)
    assert (address.protocol, address.host, address.port, address.queue) == (protocol, host, port, queue)
    assert (address.use_tls, address.path) == (False, "")


def test_tls() -> None:
    (address,), options = parse("phpmq+tls://broker/jobs?ca=ca.pem&cert=me.pem&key=me.key&server_name=inside")
    assert address.use_tls
    assert options.tls == TLS(ca="ca.pem", cert="me.pem", key="me.key", server_name="inside")


def test_several_hosts() -> None:
    addresses, options = parse("kokaq://a,B.example:1234,[::1],[::2]:5/shop/jobs?timeout=3")
    assert [(each.host, each.port) for each in addresses] == [
        ("a", 9420),
        ("b.example", 1234),
        ("::1", 9420),
        ("::2", 5),
    ]
    assert {(each.scheme, each.queue, each.use_tls) for each in addresses} == {("kokaq", "shop/jobs", False)}
    assert (options.timeout, options.returning) == (3, Reconnect(most=1.0)), "several hosts imply reconnecting"
    assert parse("kokaq://a,b?reconnect=on")[1].returning == Reconnect(most=1.0)
    assert parse("kokaq://a,b?reconnect=off")[1].returning is None
    assert parse("kokaq://a,b", {"reconnect": Reconnect(attempts=1)})[1].returning == Reconnect(attempts=1)


def test_names_in_the_certificates_of_several_hosts() -> None:

    def names(url: str) -> list[str]:
        return [each.server_name for each in parse(url)[0]]

    assert names("phpmq+tls://a,b") == ["", ""], "the host's name"
    assert names("phpmq+tls://a,b?server_name=mq") == ["mq", "mq"]
    assert names("phpmq+tls://a,b?server_name=x,y") == ["x", "y"]
    (one, two), _ = parse("phpmq+tls://a,b", {"tls": TLS(server_name="x,y")})
    assert (one.server_name, two.server_name) == ("x", "y")


def test_unix() -> None:
    (address,), _ = parse("kokaq+unix:///run/penstock/k%20q.sock?queue=default/jobs")
    assert (address.path, address.queue) == ("/run/penstock/k q.sock", "default/jobs")


def test_dialects() -> None:
    assert parse("phpmq://b")[0][0].variant.dialect is Dialect.TTL
    (address,), _ = parse("phpmq://b?dialect=36&form=lined")
    assert (address.variant.dialect, address.variant.style.width, address.variant.style.line_end) == (
        Dialect.WIDE,
        36,
        b"\n",
    )
    (address,), _ = parse("kokaq://b?numbering=listing&bits=high")
    assert (address.variant.numbering, address.variant.bit_order) == (Numbering.LISTING, BitOrder.HIGH)


def test_options_and_arguments() -> None:
    _, options = parse("sspq://b?connect_timeout=1.5&timeout=2&reconnect=on&idempotent=yes&max_message=10")
    assert (options.connect_timeout, options.timeout, options.max_message) == (1.5, 2, 10)
    assert (options.returning, options.idempotent) == (Reconnect(), True)
    assert parse("sspq://b?timeout=2", {"timeout": 3})[1].timeout == 3, "an argument wins"
    assert parse("sspq://b")[1].returning is None
    assert parse("sspq://b", {"reconnect": Reconnect(attempts=1)})[1].returning == Reconnect(attempts=1)


def test_the_text_of_an_address() -> None:
    assert str(parse("sspq+tls://[::1]")[0][0]) == "SSPQ at [::1]:8888 (TLS)"
    assert str(parse("sspq+unix:///x.sock")[0][0]) == "SSPQ at /x.sock"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jobs", "starts with phpmq://, sspq:// or kokaq://"),
        ("http://broker/jobs", "not with 'http://'"),
        ("phpmq+ssl://broker", "optionally with +tls or +unix"),
        ("phpmq:///jobs", "names no host: phpmq://127.0.0.1:9100"),
        ("phpmq://broker:99999", "'broker:99999' is no host and port"),
        ("phpmq://a,b:99999", "'b:99999' is no host and port: Port out of range"),
        ("phpmq://a,b:x", "'b:x' is no host and port"),
        ("phpmq://a,,b", "a host is missing between the commas of 'a,,b'"),
        ("phpmq://a,b,", "write hosts as in a,b:9100,[::1]"),
        ("phpmq://a,:9100", "a host is missing"),
        ("phpmq://a,[::1", "'[::1' is no host and port: Invalid IPv6 URL"),
        ("phpmq://a,A:9100", "the host 'A:9100' occurs twice"),
        ("phpmq+tls://a,b?server_name=x,y,z", "one name for all hosts, or one for each of 2, not 'x,y,z'"),
        ("phpmq+tls://a,b?server_name=x,", "one name for all hosts, or one for each of 2"),
        ("phpmq+unix://a,b/x.sock", "absolute path after two slashes"),
        ("phpmq://a,me:secret@broker", "has no log-in"),
        ("phpmq:/a?ask=kokaq://b", "names no host"),
        ("phpmq://me:secret@broker", "has no log-in: prove who you are with a client certificate"),
        ("phpmq://broker/a#b", "is written %23"),
        ("sspq://broker/jobs", "SSPQ URLs have no path"),
        ("kokaq://broker/default/", "names of 1 to 255 bytes"),
        ("kokaq://broker//jobs", "names of 1 to 255 bytes"),
        (f"phpmq://broker/{'x' * 256}", "names of 1 to 255 bytes"),
        ("phpmq+unix://run/x.sock", "absolute path after two slashes"),
        ("phpmq+unix:///", "absolute path"),
        ("sspq+unix:///x?queue=jobs", "the option 'queue' is unknown"),
        ("phpmq://broker?dialekt=32", "it accepts ask, connect_timeout, dialect, form, "),
        ("phpmq://broker?ca=x", "the option 'ca' is unknown in this URL"),
        ("phpmq://broker?dialect=33", "dialect=33 is invalid; use one of 36, 32, ttl"),
        ("sspq://broker?timeout=soon", "timeout=soon is invalid; use a number"),
        ("sspq://broker?timeout=0", "above 0"),
        ("sspq://broker?timeout=nan", "above 0"),
        ("sspq://broker?timeout=1&timeout=2", "occurs twice"),
        ("sspq://broker?reconnect=maybe", "use one of 1, on, true"),
        ("sspq://broker?max_message=-1", "whole number"),
    ],
)
def test_a_wrong_url_is_refused_with_a_suggestion(url: str, message: str) -> None:
    with pytest.raises(BadURL) as caught:
        parse(url)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not caught.value.retriable


def test_names() -> None:
    assert split_name("jobs") == ("default", "jobs")
    assert split_name("ns/a/b") == ("ns", "a/b")
