"""What an archive covers: from which position to which, of which queues, and of which journal.

Its rows alone do not tell: behind the last message there may be any number of positions that are none. So after each
batch that is in its tables a small file beside them says so. It may be a batch behind, and is never ahead.

Spark's log of offsets has it all: the end of each batch, of what, and how long its parts are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.spark.pipelines.lake.batches import HIDDEN, LakeError, write_whole
from penstock.spark.pipelines.lake.store import Store


class Coverage(msgspec.Struct, frozen=True):
    """Positions from ``start`` to before ``stop``. ``start`` 0: from its first row on, wherever that is.

    ``of`` is as in an offset: ``queue`` or ``queuePattern``. ``rows`` are those of both tables; 0: not counted.
    """

    #: Empty: the tables have messages of several journals.
    identity: str
    of: dict[str, str]
    start: int
    stop: int
    rows: int = 0
    quarantined: int = 0


def covered(checkpoint: Path, batch: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What to remember of a batch that will be in. ``before`` is what was remembered; None: this is the first one.

    Nothing, if no stream has planned the batch, but somebody who uses the pipeline as a library.
    """
    try:
        end = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    except FileNotFoundError:
        return {}
    begin, of = end["position"] - sum(end.get("parts") or ()), end["of"]
    known = {"start": begin if before is None else 0, "identity": end["identity"], "of": of}
    known |= (before or {}).get("covers", {})
    if known["of"] != of:  # of what it has now, it has nothing from before
        known |= {"of": of, "start": begin}
    if known["identity"] != end["identity"]:
        known["identity"] = ""
    return {"covers": {**known, "stop": end["position"]}}


def write_coverage(store: Store, table: str, remembered: Mapping[str, Any]) -> None:
    """Write it beside the tables, if a stream has planned the batch."""
    if "covers" not in remembered:
        return
    counts = {name: remembered[name] for name in ("rows", "quarantined") if name in remembered}
    data = msgspec.json.encode({**remembered["covers"], **counts})
    if store.remote:
        with store.create(_path(table)) as file:
            file.write(data)
    else:
        path = Path(store.full(_path(table)))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)


def read_coverage(store: Store, table: str) -> Coverage | None:
    """What an archive says of itself; None: nothing."""
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
