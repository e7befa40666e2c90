"""TLS: versions, client certificates, reloading at run time, and handshakes that fail."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.tls_errors import handshake_reason
from support.brokers import Peer, dial, wait_for
from support.certificates import Authority, Certificate, client_context
from support.good import PLAIN, Broker, Good, broker_with
from support.raw import NO_RECEIVE, RECEIVE, consume, publish, read_dispatch, sspq

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        foreign = Authority(folder / "foreign", "somebody else")
        self.server = self.authority.sign("server")
        self.other_server = self.authority.sign("other-server")
        self.billing = self.authority.sign("billing-1")
        self.expired = self.authority.sign("expired", until="20200102000000Z")
        self.foreign = foreign.sign("billing-1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_listener(certificate: Certificate, client_ca: Path | None = None) -> str:
    lines = ["[[sspq]]", 'address = "127.0.0.1:0"', 'queue = "default/tls"']
    lines += [f'tls_certificate = "{certificate.path}"', f'tls_key = "{certificate.key}"']
    return PLAIN + "\n".join(lines + ([f'tls_client_ca = "{client_ca}"'] if client_ca else []))


@pytest.fixture
def broker(tmp_path: Path, certificates: Certificates) -> Iterator[Broker]:
    """A broker whose second SSPQ listener speaks TLS."""
    limits = "unfinished_seconds = 0.5\nconnections_per_address = 4"
    with broker_with(tmp_path, limits, listeners=tls_listener(certificates.server)) as broker:
        yield broker


def is_served(channel: socket.socket) -> bool:
    """Whether the other side answers over SSPQ."""
    try:
        channel.sendall(sspq(RECEIVE) * 2)
        return channel.recv(8) == sspq(NO_RECEIVE)
    except OSError:
        return False


def greet(broker: Broker, context: ssl.SSLContext) -> bool:
    with dial(broker.address("sspq", 1)) as plain:
        try:
            with context.wrap_socket(plain) as channel:
                return is_served(channel)
        except OSError:
            return False


def handshake(context: ssl.SSLContext, server: ssl.SSLContext) -> tuple[OSError | None, OSError | None]:
    """The error that each side of a handshake sees, the client's first."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [context.wrap_bio(ours, theirs), server.wrap_bio(theirs, ours, server_side=True)]
    errors: list[OSError | None] = [None, None]
    for _ in range(6):
        for at, side in enumerate(sides):
            try:
                side.do_handshake() if errors[at] is None else None
                side.read(1)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                errors[at] = errors[at] or error
    return errors[0], errors[1]


def test_both_sides_distinguish_expired_from_unknown_certificates(certificates: Certificates) -> None:
    """With OpenSSL at the other end, which sends an alert before it hangs up."""
    outcomes = []
    for shown in (certificates.expired, certificates.foreign, None):
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificates.server.path, certificates.server.key)
        server.load_verify_locations(certificates.authority.path)
        server.verify_mode = ssl.CERT_REQUIRED
        client, broker = handshake(client_context(shown), server)
        assert client is not None
        assert broker is not None
        outcomes.append((handshake_reason(broker, "client"), handshake_reason(client, "broker").partition(" (")[0]))
    assert outcomes == [
        (
            "the client's certificate is not accepted: certificate has expired (CERTIFICATE_VERIFY_FAILED)",
            "the broker says: our certificate has expired",
        ),
        (
            "the client's certificate is not accepted: unable to get local issuer certificate "
            "(CERTIFICATE_VERIFY_FAILED)",
            "the broker says: our certificate is of an authority that it does not know",
        ),
        (
            "the client shows no certificate (PEER_DID_NOT_RETURN_A_CERTIFICATE)",
            "the broker says: we have to show a certificate",
        ),
    ]


def test_versions_that_are_spoken(broker: Broker) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context()
        context.minimum_version = context.maximum_version = version
        assert greet(broker, context)


def test_tls_1_1_is_refused(broker: Broker) -> None:
    context = client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert not greet(broker, context)
    assert "UNSUPPORTED_PROTOCOL" in wait_for(lambda: broker.events("TLS handshake failed"))[0]["reason"]


def test_plain_bytes_where_tls_is_spoken(broker: Broker) -> None:
    with Good(broker):
        broker.dial("sspq", 1).send(sspq(RECEIVE)).socket.recv(100)
        assert wait_for(lambda: broker.events("TLS handshake failed"))[0]["peer"] == "127.0.0.1"


def test_tls_where_plain_bytes_are_spoken(broker: Broker) -> None:
    with Good(broker):
        for protocol in ("phpmq", "sspq", "kokaq"):
            with dial(broker.address(protocol)) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
                client_context().wrap_socket(plain)
        assert [line["protocol"] for line in broker.events("protocol error")] == ["phpmq", "sspq", "kokaq"]


def test_handshakes_that_are_not_begun_count_and_end(broker: Broker) -> None:
    silent = [broker.dial("sspq", 1) for _ in range(4)]
    broker.dial("phpmq").expect_end()
    assert broker.events("too many connections from one address")
    for peer in silent:
        peer.expect_end()
    assert len(wait_for(lambda: broker.events("TLS handshake failed")[3:] or None)) == 1
    assert greet(broker, client_context())


def served_certificate(broker: Broker) -> bytes:
    with dial(broker.address("sspq", 1)) as plain, client_context().wrap_socket(plain) as channel:
        return channel.getpeercert(binary_form=True) or b""


def test_certificates_are_read_again(tmp_path: Path, certificates: Certificates) -> None:
    """New connections use them; unreadable or mismatched files change nothing."""
    used = Certificate(tmp_path / "used.pem", tmp_path / "used.key")

    def use(broker: Broker, path: Path, key: Path, event: str) -> None:
        shutil.copy(path, used.path)
        shutil.copy(key, used.key)
        before = len(broker.events(event))
        broker.signal(signal.SIGHUP)
        wait_for(lambda: len(broker.events(event)) > before)

    first, second = certificates.server, certificates.other_server
    shutil.copy(first.path, used.path)
    shutil.copy(first.key, used.key)
    with broker_with(tmp_path, listeners=tls_listener(used)) as broker:
        old = Peer(broker.address("sspq", 1), tls=True)
        assert ssl.DER_cert_to_PEM_cert(served_certificate(broker)) == first.path.read_text()
        use(broker, second.path, second.key, "certificate read again")
        assert ssl.DER_cert_to_PEM_cert(served_certificate(broker)) == second.path.read_text()
        for path, key in ((first.path, second.key), (first.key, first.key), (first.path, first.path)):
            use(broker, path, key, "certificate not changed")
            assert ssl.DER_cert_to_PEM_cert(served_certificate(broker)) == second.path.read_text()
        assert is_served(old.socket)
        old.close()


def test_clients_must_show_a_good_certificate(tmp_path: Path, certificates: Certificates) -> None:
    rules = '[[access]]\nsubject = "billing-*"\nmay = ["consume"]\nwhere = ["default/tls"]\n'
    listeners = rules + tls_listener(certificates.server, certificates.authority.path)
    with broker_with(tmp_path, listeners=listeners) as broker:
        refused = [None, certificates.foreign, certificates.expired]
        assert [greet(broker, client_context(each)) for each in refused] == [False] * 3
        wait_for(lambda: len(broker.events("TLS handshake failed")) == 3)
        reasons = sorted(line["reason"] for line in broker.events("TLS handshake failed"))
        assert reasons == [
            "the client shows no certificate (PEER_DID_NOT_RETURN_A_CERTIFICATE)",
            "the client's certificate is not accepted: certificate has expired (CERTIFICATE_VERIFY_FAILED)",
            "the client's certificate is not accepted: unable to get local issuer certificate "
            "(CERTIFICATE_VERIFY_FAILED)",
        ]
        assert greet(broker, client_context(certificates.billing))
        with dial(broker.address("sspq", 1)) as plain:
            channel = client_context(certificates.billing).wrap_socket(plain)
            channel.sendall(sspq(0x5E, b"may not publish"))
            assert channel.recv(1) == b""
            channel.close()
        (line,) = broker.events("access denied")
        assert (line["subject"], line["right"]) == ("billing-1", "publish")


def test_the_subject_is_the_first_alternative_name(tmp_path: Path, certificates: Certificates) -> None:
    """As over Flight. The log points out a rule that was written for the common name."""
    shown = certificates.authority.sign_as("both", "/CN=old-1", "DNS:new-1,DNS:new-2")
    rules = '[[access]]\nsubject = "{}"\nmay = ["consume"]\n'
    listener = tls_listener(certificates.server, certificates.authority.path)
    listeners = rules.format("old-*") + rules.format("?ew-2") + listener
    with broker_with(tmp_path, listeners=listeners) as broker:
        with dial(broker.address("sspq", 1)) as plain, client_context(shown).wrap_socket(plain) as channel:
            channel.sendall(sspq(RECEIVE))
            assert channel.recv(8) == sspq(NO_RECEIVE)
        (line,) = broker.events("access denied")
        assert (line["subject"], line["right"]) == ("new-1", "consume")
        event = "an access rule names a certificate's common name, but its subject is its first alternative name"
        (line,) = broker.events(event)
        assert (line["common_name"], line["subject"]) == ("old-1", "new-1")


def test_messages_of_any_size_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    listener = tls_listener(certificates.server).replace(
        '[[sspq]]\naddress = "127.0.0.1:0"\nqueue = "default/tls"', '[[phpmq]]\naddress = "127.0.0.1:0"'
    )
    with (
        broker_with(tmp_path, "output_bytes = 10_000", listeners=listener) as broker,
        Peer(broker.address("phpmq", 1), tls=True) as peer,
    ):
        sizes = [0, 1, 100_000, 3_000_000]
        peer.send(*(publish("q", bytes(size)) for size in sizes), consume("q", 10))
        assert [len(read_dispatch(peer).payload) for _ in sizes] == sizes
