"""A certificate has the same subject over Flight, where gRPC extracts it, as over all other protocols."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

from penstock.companions.certificate_subjects import common_name_of, subject_of_certificate
from penstock.flight.access import peer_of
from support.certificates import Authority, Certificate, client_context

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")

#: Subject, alternative names, and the subject that access rules must see.
CERTIFICATES = {
    "common name": ("/CN=billing-1", "", "billing-1"),
    "among others": ("/O=us/CN=billing-1/OU=them", "", "billing-1"),
    "not ascii": ("/CN=büro", "", "büro"),
    "two common names": ("/CN=one/CN=two", "", "one"),
    "nothing": ("/O=us", "", ""),
    "host": ("/CN=billing-1", "DNS:a.example,DNS:b.example", "a.example"),
    "host without a common name": ("/O=us", "DNS:a.example", "a.example"),
    "uri": ("/CN=x", "URI:spiffe://example.org/billing,DNS:a.example", "spiffe://example.org/billing"),
    "mail": ("/CN=x", "email:me@a.example", "me@a.example"),
    "address": ("/CN=x", "IP:10.1.2.3,DNS:a.example", "10.1.2.3"),
    "IPv6 address": ("/CN=x", "IP:fd00::1:2", "fd00::1:2"),
    "IPv4 in IPv6": ("/CN=x", "IP:::ffff:10.1.2.3", "::ffff:10.1.2.3"),
    "another kind": ("/CN=x", "RID:1.2.3.4,DNS:a.example", ""),
    "a directory name": ("/CN=x", "dirName:inner\n[inner]\nCN=y", ""),
    "a name of its own": ("/CN=x", "otherName:1.2.3.4;UTF8:y,DNS:a.example", ""),
}


class Mirror(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Returns the subject that the endpoint would see."""

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        return iter([fl.Result(peer_of(context).subject.encode())])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certificate:
    return authority.sign("localhost")


@pytest.fixture(scope="module")
def mirror(authority: Authority, server: Certificate) -> Iterator[Mirror]:
    pair = fl.CertKeyPair(server.path.read_bytes(), server.key.read_bytes())
    roots = authority.path.read_bytes()
    with Mirror("grpc+tls://127.0.0.1:0", None, [pair], True, root_certificates=roots) as found:
        yield found


def over_flight(mirror: Mirror, authority: Authority, shown: Certificate) -> str:
    files = {"tls_root_certs": authority.path, "cert_chain": shown.path, "private_key": shown.key}
    how = {name: path.read_bytes() for name, path in files.items()}
    with fl.FlightClient(f"grpc+tls://127.0.0.1:{mirror.port}", override_hostname="localhost", **how) as client:
        [result] = client.do_action(fl.Action("", b""))
        return str(result.body.to_pybytes().decode())


def over_tls(server: Certificate, authority: Path, shown: Certificate) -> dict[str, Any]:
    """The certificate as our own listeners see it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.path, server.key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    found: list[dict[str, Any]] = []

    def accept() -> None:
        with context.wrap_socket(ours, server_side=True) as channel:
            found.append(dict(channel.getpeercert() or {}))
            channel.sendall(b"x")

    thread = threading.Thread(target=accept)
    thread.start()
    with client_context(shown).wrap_socket(theirs) as channel:
        channel.recv(1)
    thread.join()
    return found[0]


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_the_subject_is_the_same_everywhere(
    mirror: Mirror, authority: Authority, server: Certificate, kind: str
) -> None:
    subject, alternative, expected = CERTIFICATES[kind]
    shown = authority.sign_as("shown", subject, alternative)
    certificate = over_tls(server, authority.path, shown)
    assert (over_flight(mirror, authority, shown), subject_of_certificate(certificate)) == (expected, expected)


def test_without_a_certificate_there_is_none() -> None:
    assert (subject_of_certificate({}), common_name_of({})) == ("", "")
