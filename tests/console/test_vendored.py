"""Vendored libraries match their recorded hashes, and no other files lie beside them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

VENDOR = Path(__file__).parents[2] / "src" / "penstock" / "web" / "vendor"
PACKAGES: list[dict[str, Any]] = json.loads((VENDOR / "manifest.json").read_text())["packages"]
FILES: list[dict[str, Any]] = [file for package in PACKAGES for file in package["files"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["to"]))
def test_a_file_is_as_it_was_fetched(file: dict[str, Any]) -> None:
    assert hashlib.sha256((VENDOR / file["to"]).read_bytes()).hexdigest() == file["sha256"]


def test_every_file_is_in_the_manifest() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {"manifest.json", *(file["to"] for file in FILES)}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package["name"]))
def test_every_package_has_its_version_licence_and_origin(package: dict[str, Any]) -> None:
    assert package["version"]
    assert package["licence"] in {"MIT", "Apache-2.0"}
    assert package["integrity"].startswith("sha512-")
    assert [file for file in package["files"] if file["to"].endswith(".LICENSE")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["to"]))
def test_nothing_in_them_needs_a_build_step_or_an_unsafe_policy(file: dict[str, Any]) -> None:
    source = (VENDOR / file["to"]).read_text()
    assert "sourceMappingURL" not in source
    if file["to"].endswith(".js"):
        assert "eval(" not in source
        assert "new Function" not in source
        assert 'from"preact' not in source
