"""An archive's coverage: its range of positions, its queues, and its journal.

The rows alone do not show it: any number of positions without a message may follow the last one. So after each batch
that is in the tables, a small file beside them records it. It may be a batch behind, and is never ahead. It is derived
from Spark's log of offsets: the end of each batch, its source, and the lengths of its parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.spark.lake.batches import HIDDEN
from penstock.spark.lake.disk import LakeError, write_whole
from penstock.spark.lake.store import Store


class Coverage(msgspec.Struct, frozen=True):
    """Positions from ``start`` up to ``stop`` (exclusive). ``start`` 0: from the first row on, wherever that is.

    ``of`` is as in an offset: ``queue`` or ``queuePattern``. ``rows`` counts both tables.
    """

    #: Empty: the tables have messages of several journals.
    identity: str
    of: dict[str, str]
    start: int
    stop: int
    rows: int
    quarantined: int


def covered(checkpoint: Path, batch: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The coverage after a batch. ``before`` is the coverage before it; None: this is the first one.

    Empty if no stream has planned the batch: the pipeline is used as a library.
    """
    try:
        end = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    except FileNotFoundError:
        return {}
    begin, of = end["position"] - sum(end.get("parts") or ()), end["of"]
    known = {"start": begin if before is None else 0, "identity": end["identity"], "of": of}
    known |= (before or {}).get("covers", {})
    if known["of"] != of:  # the source has changed, and the archive has nothing of it from before
        known |= {"of": of, "start": begin}
    if known["identity"] != end["identity"]:
        known["identity"] = ""
    return {"covers": {**known, "stop": end["position"]}}


def write_coverage(store: Store, table: str, remembered: Mapping[str, Any]) -> None:
    """Write the coverage beside the tables, if a stream has planned the batch."""
    if "covers" not in remembered:
        return
    counts = {name: remembered[name] for name in ("rows", "quarantined")}
    data = msgspec.json.encode({**remembered["covers"], **counts})
    if store.remote:
        with store.create(_path(table)) as file:
            file.write(data)
    else:
        path = Path(store.full(_path(table)))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)


def read_coverage(store: Store, table: str) -> Coverage | None:
    """An archive's recorded coverage; None if there is none."""
    try:
        with store.filesystem.open_input_stream(store.full(_path(table))) as file:
            return msgspec.json.decode(file.read(), type=Coverage)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LakeError(
            f"{_path(table)} can't be understood ({error}): run `penstock pipeline archive` again"
        ) from None


def _path(table: str) -> str:
    return f"{HIDDEN}/archive-{table}/coverage.json"
