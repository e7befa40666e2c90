"""Certificates for tests, made with openssl: an authority and the certificates that it signs."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
CONFIG = """\
[ca]
default_ca = own
[own]
database = {0}/index
new_certs_dir = {0}
certificate = {0}/ca.pem
private_key = {0}/ca.key
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
"""


class Certificate(NamedTuple):
    """Two PEM files."""

    path: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir()
        self.folder = folder
        self.path = folder / "ca.pem"
        _openssl("req", "-x509", *CURVE, "-keyout", f"{folder}/ca.key", "-out", str(self.path), "-subj", f"/CN={name}")
        (folder / "index").write_text("")
        (folder / "config").write_text(CONFIG.format(folder))

    def sign(self, subject: str, *, until: str = "20491231235959Z") -> Certificate:
        """A certificate for this common name."""
        made = Certificate(self.folder / f"{subject}.pem", self.folder / f"{subject}.key")
        request = self.folder / "request"
        _openssl("req", "-new", *CURVE, "-keyout", str(made.key), "-out", str(request), "-subj", f"/CN={subject}")
        dates = ["-startdate", "20200101000000Z", "-enddate", until]
        files = ["-in", str(request), "-out", str(made.path), "-config", f"{self.folder}/config"]
        _openssl("ca", "-batch", "-notext", *dates, *files)
        return made

    def sign_as(self, file: str, subject: str, alternative: str = "") -> Certificate:
        """A certificate for a whole subject, as in /O=us/CN=me, and alternative names, as in DNS:me,URI:us://me."""
        made = Certificate(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        request, extensions = self.folder / "request", self.folder / "extensions"
        _openssl("req", "-new", "-utf8", *CURVE, "-keyout", str(made.key), "-out", str(request), "-subj", subject)
        extensions.write_text(f"subjectAltName={alternative}\n" if alternative else "basicConstraints=CA:FALSE\n")
        own = ["-CA", str(self.path), "-CAkey", f"{self.folder}/ca.key", "-set_serial", "7", "-days", "100"]
        files = ["-in", str(request), "-out", str(made.path), "-extfile", str(extensions)]
        _openssl("x509", "-req", *own, *files)
        return made


def client_context(certificate: Certificate | None = None) -> ssl.SSLContext:
    """A client context that trusts every server and presents this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate.path, certificate.key)
    return context


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
